#include "belay/data/dataset.h"

#include <gtest/gtest.h>

#include <cstring>

#include "belay/data/foreign_format.h"
#include "belay/data/store_format.h"
#include "belay/data/store_writer.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

using Ids = std::vector<std::int32_t>;

std::string write_store(const TestDirectory& directory, const std::vector<Ids>& documents,
                        StoreWriterOptions options = {}, std::int64_t pad_id = 0) {
  options.out = directory.path("store");
  options.overwrite = true;
  StoreWriter writer(options);
  for (const Ids& ids : documents) {
    writer.append(ids);
    writer.end_document();
  }
  StoreMeta meta;
  meta.pad_id = pad_id;
  writer.finish(meta, nullptr);
  writer.publish();
  return options.out;
}

struct Row {
  Ids tokens, targets, positions, doc_begin;
  std::int64_t counted = 0;
};

Row fill(const Dataset& dataset, std::int64_t sample) {
  const auto length = static_cast<std::size_t>(dataset.seq_len());
  Row row{Ids(length, -7), Ids(length, -7), Ids(length, -7), Ids(length, -7)};
  row.counted = dataset.fill(sample, {row.tokens, row.targets, row.positions, row.doc_begin});
  return row;
}

Ids counting(std::int32_t first, std::int32_t count) {
  Ids ids;
  for (std::int32_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

TEST(Dataset, DocumentsInOneRowAreIsolated) {
  const TestDirectory directory;
  const Dataset dataset =
      Dataset::open(write_store(directory, {counting(10, 5), counting(20, 3)}), 8);
  ASSERT_EQ(dataset.samples(), 1);
  const Row row = fill(dataset, 0);
  EXPECT_EQ(row.tokens, (Ids{10, 11, 12, 13, 14, 20, 21, 22}));
  EXPECT_EQ(row.targets, (Ids{11, 12, 13, 14, -1, 21, 22, -1}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(row.doc_begin, (Ids{0, 0, 0, 0, 0, 5, 5, 5}));
  EXPECT_EQ(row.counted, 6);
}

TEST(Dataset, ACutDocumentLosesNoLabelAndPaddingIsASegmentOfItsOwn) {
  const TestDirectory directory;
  const Dataset dataset =
      Dataset::open(write_store(directory, {counting(10, 6)}, {}, /*pad_id=*/9), 4);
  ASSERT_EQ(dataset.samples(), 2);
  EXPECT_EQ(fill(dataset, 0).targets, (Ids{11, 12, 13, 14}));
  const Row row = fill(dataset, 1);
  EXPECT_EQ(row.tokens, (Ids{14, 15, 9, 9}));
  EXPECT_EQ(row.targets, (Ids{15, -1, -1, -1}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 0, 1}));
  EXPECT_EQ(row.doc_begin, (Ids{0, 0, 2, 2}));
  EXPECT_EQ(row.counted, 1);
  EXPECT_DOUBLE_EQ(dataset.padding_share(), 0.25);
}

TEST(Dataset, EachTokenIsInputOnceAndTargetOnce) {
  const TestDirectory directory;
  std::vector<Ids> documents;
  std::int32_t next = 0;
  for (const std::int32_t length : {1, 7, 8, 9, 31, 2, 16, 1, 40}) {
    documents.push_back(counting(next, length));
    next += length;
  }
  for (const std::int64_t row_len : {0, 8}) {
    StoreWriterOptions options;
    options.row_len = row_len;
    options.packing = Packing::documents;
    const std::string store = write_store(directory, documents, options, next);
    for (const std::int64_t seq_len : {1, 3, 8, 200}) {
      const Dataset dataset = Dataset::open(store, seq_len);
      EXPECT_EQ(dataset.packed_rows(), row_len == seq_len);
      std::vector<int> inputs(static_cast<std::size_t>(next) + 1);
      std::vector<int> targets(static_cast<std::size_t>(next));
      std::int64_t counted = 0;
      for (std::int64_t sample = 0; sample < dataset.samples(); ++sample) {
        const Row row = fill(dataset, sample);
        counted += row.counted;
        for (std::size_t i = 0; i < row.tokens.size(); ++i) {
          ++inputs[static_cast<std::size_t>(row.tokens[i])];
          if (row.targets[i] < 0) continue;
          ++targets[static_cast<std::size_t>(row.targets[i])];
          EXPECT_EQ(row.targets[i], row.tokens[i] + 1);
        }
      }
      EXPECT_EQ(counted, dataset.counted());
      EXPECT_EQ(counted, next - std::ssize(documents));
      std::size_t id = 0;
      for (const Ids& document : documents) {
        for (std::size_t i = 0; i < document.size(); ++i, ++id) {
          EXPECT_EQ(inputs[id], 1);
          EXPECT_EQ(targets[id], i == 0 ? 0 : 1);
        }
      }
    }
  }
}

TEST(Dataset, PackedRowsLieAlignedAndFilledUp) {
  const TestDirectory directory;
  StoreWriterOptions options;
  for (const TokenType type : {TokenType::u16, TokenType::u32}) {
    options.type = type;
    options.row_len = 48;  // rows of 96 or 192 bytes begin every 128 or 256
    const std::string store =
        write_store(directory, {counting(0, 40), counting(100, 40), counting(200, 8)}, options, 7);
    const std::string file = directory.read("store/row_tokens.bin");
    const auto width = static_cast<std::size_t>(width_of(type));
    const std::size_t stride = 64;
    ASSERT_EQ(file.size(), kStoreHeaderBytes + 2 * stride * width);
    const Dataset dataset = Dataset::open(store, 48);
    ASSERT_EQ(dataset.samples(), 2);
    for (std::size_t r = 0; r < 2; ++r) {
      const std::size_t at = kStoreHeaderBytes + r * stride * width;
      EXPECT_EQ(at % kRowAlignment, 0U);
      const Row row = fill(dataset, static_cast<std::int64_t>(r));
      for (std::size_t i = 0; i < stride; ++i) {
        std::int32_t id = 0;
        std::memcpy(&id, file.data() + at + i * width, width);
        EXPECT_EQ(id, i < 48 ? row.tokens[i] : 7);
      }
    }
    // 40 + 8 is a full row; the other has eight places over.
    EXPECT_DOUBLE_EQ(dataset.padding_share(), 8.0 / 96.0);
    EXPECT_EQ(dataset.counted(), 85);
  }
}

TEST(Dataset, SaysWhatIsWrongWithPackedRows) {
  const TestDirectory directory;
  StoreWriterOptions options;
  options.row_len = 16;
  const std::string store = write_store(directory, {counting(0, 20)}, options);
  const std::string row_tokens = directory.read("store/row_tokens.bin");
  std::filesystem::remove(directory.path("store/row_tokens.bin"));
  EXPECT_TRUE(contains(error_of([&] { Dataset::open(store, 16); }), "row_tokens.bin"));
  EXPECT_EQ(Dataset::open(store, 8).samples(), 3);  // cut from the stream, which is there
  directory.write("store/row_tokens.bin", row_tokens.substr(0, row_tokens.size() - 128));
  EXPECT_TRUE(contains(error_of([&] { Dataset::open(store, 16); }), "truncated or damaged"));
  std::string bad = row_tokens;
  bad[kStoreHeaderBytes] = 99;
  directory.write("store/row_tokens.bin", bad);
  const Dataset dataset = Dataset::open(store, 16);
  EXPECT_TRUE(contains(error_of([&] { fill(dataset, 0); }), "row 0 holds an id above 19"));
}

TEST(Dataset, WideIdsComeBackAsTheyWereWritten) {
  const TestDirectory directory;
  StoreWriterOptions options;
  options.type = type_for_vocab(119547, StoreFormat::belay);
  EXPECT_EQ(options.type, TokenType::u32);
  const Ids ids = {0, 65535, 65536, 119546};
  const std::string store = write_store(directory, {ids}, options);
  const Dataset dataset = Dataset::open(store, 4);
  EXPECT_EQ(fill(dataset, 0).tokens, ids);
  EXPECT_EQ(dataset.max_id(), 119546);

  options.type = TokenType::u16;
  options.out = directory.path("narrow");
  StoreWriter writer(options);
  writer.append(ids);
  writer.end_document();
  const std::string message = error_of([&] { writer.finish({}, nullptr); });
  EXPECT_TRUE(contains(message, "largest id is 119546, but u16 holds ids up to 65535"));
  EXPECT_FALSE(directory.exists("narrow"));
}

TEST(Dataset, ReadsWhatMegatronReads) {
  const TestDirectory directory;
  StoreWriterOptions options;
  options.format = StoreFormat::megatron;
  write_store(directory, {{1, 2, 3}, {4, 5}}, options);
  EXPECT_EQ(directory.read("store.bin"), std::string("\1\0\2\0\3\0\4\0\5\0", 10));
  EXPECT_EQ(directory.entries(), 2);
  for (const char* name : {"store", "store.bin", "store.idx"}) {
    const Dataset dataset = Dataset::open(directory.path(name), 8);
    EXPECT_EQ(fill(dataset, 0).tokens, (Ids{1, 2, 3, 4, 5, 0, 0, 0}));
    EXPECT_EQ(fill(dataset, 0).targets, (Ids{2, 3, -1, 5, -1, -1, -1, -1}));
    EXPECT_EQ(dataset.documents(), 2);
    EXPECT_EQ(dataset.max_id(), 5);
  }
}

std::string llmc_file(std::int32_t magic, std::int32_t version, const Ids& ids) {
  std::string bytes(kLlmcHeaderBytes, '\0');
  const std::int32_t words[] = {magic, version, static_cast<std::int32_t>(ids.size())};
  std::memcpy(bytes.data(), words, sizeof(words));
  for (const std::int32_t id : ids) {
    bytes.append(reinterpret_cast<const char*>(&id), version == 1 ? 2 : 4);
  }
  return bytes;
}

TEST(Dataset, ReadsLlmcFilesAloneAndInADirectory) {
  const TestDirectory directory;
  directory.write("d/a.bin", llmc_file(20240520, 1, {1, 2, 50256}));
  directory.write("d/b.bin", llmc_file(20240801, 7, {128000, 4, 5, 6, 7}));
  EXPECT_EQ(fill(Dataset::open(directory.path("d/a.bin"), 4), 0).tokens, (Ids{1, 2, 50256, 0}));
  const Dataset both = Dataset::open(directory.path("d"), 4);
  EXPECT_EQ(both.samples(), 3);
  EXPECT_EQ(both.documents(), 2);
  EXPECT_EQ(fill(both, 0).tokens, (Ids{1, 2, 50256, 0}));
  EXPECT_EQ(fill(both, 1).tokens, (Ids{128000, 4, 5, 6}));
  EXPECT_EQ(fill(both, 1).targets, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(fill(both, 2).tokens, (Ids{7, 0, 0, 0}));
}

TEST(Dataset, RefusesIdsBeyondTheModelsVocabulary) {
  const TestDirectory directory;
  Dataset store = Dataset::open(write_store(directory, {counting(0, 9), {3, 32, 4}}), 8);
  store.check_ids(33);
  EXPECT_TRUE(contains(error_of([&] { store.check_ids(32); }),
                       "tokens.bin: document 1 holds id 32 at its token 1: the model's vocabulary "
                       "of 32 ends at id 31"));
  Dataset foreign = Dataset::open(directory.write("x.bin", llmc_file(20240520, 1, {1, 2, 999})), 8);
  foreign.check_ids(1000);
  EXPECT_TRUE(contains(error_of([&] { foreign.check_ids(999); }),
                       "x.bin: document 0 holds id 999 at its token 2"));
}

// Opens, verifies and reads everything.
void use(const std::string& store) {
  const Dataset dataset = Dataset::open(store, 8);
  dataset.verify();
  for (std::int64_t i = 0; i < dataset.samples(); ++i) fill(dataset, i);
}

TEST(Dataset, EveryFlippedByteAndMissingEndOfAStoreFileIsNoticed) {
  const TestDirectory directory;
  StoreWriterOptions options;
  options.row_len = 8;
  const std::string store = write_store(directory, {counting(0, 11), counting(20, 5)}, options);
  use(store);
  for (const std::string name :
       {kTokensFile, kDocumentsFile, kRowsFile, kPiecesFile, kRowTokensFile}) {
    const std::string good = directory.read("store/" + name);
    for (std::size_t at = 0; at < good.size(); ++at) {
      if (at >= 56 && at < kStoreHeaderBytes) continue;  // unused part of the header
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      directory.write("store/" + name, bad);
      EXPECT_TRUE(contains(error_of([&] { use(store); }), name)) << "byte " << at;
    }
    for (std::size_t size = 0; size < good.size(); size += 5) {
      directory.write("store/" + name, good.substr(0, size));
      EXPECT_TRUE(contains(error_of([&] { use(store); }), name)) << "size " << size;
    }
    directory.write("store/" + name, good + "x");
    EXPECT_TRUE(contains(error_of([&] { use(store); }), name));
    directory.write("store/" + name, good);
  }
  use(store);
}

TEST(Dataset, SaysWhatIsWrongWithAStore) {
  const TestDirectory directory;
  const std::string store = write_store(directory, {counting(0, 20)});
  const std::string tokens = directory.read("store/tokens.bin");
  const auto refusal = [&] { return error_of([&] { Dataset::open(store, 8); }); };

  directory.write("store/tokens.bin", tokens.substr(0, tokens.size() - 2));
  EXPECT_TRUE(contains(refusal(), "promises 20 items of 2 bytes, the file holds 38 bytes"));
  std::string version = tokens;
  version[8] = 2;
  directory.write("store/tokens.bin", version);
  EXPECT_TRUE(contains(refusal(), "format version 2, this program reads version 1"));
  directory.write("store/tokens.bin", "");
  EXPECT_TRUE(contains(refusal(), "0 bytes are too few"));
  directory.write("store/tokens.bin", tokens);

  const std::string meta = directory.read("store/meta.json");
  directory.write("store/meta.json", "{");
  EXPECT_TRUE(contains(refusal(), "meta.json: not JSON"));
  directory.write("store/meta.json", R"({"format":"other"})");
  EXPECT_TRUE(contains(refusal(), "\"format\" is not"));
  std::string outside = meta;
  outside.replace(outside.find("\"tokenizer\": \"\""), 15, "\"tokenizer\": \"../x\"");
  directory.write("store/meta.json", outside);
  EXPECT_TRUE(contains(refusal(), "file name inside the store"));
  EXPECT_TRUE(
      contains(error_of([&] { Dataset::open(directory.path("none"), 8); }), "no such dataset"));
}

}  // namespace
}  // namespace belay::data
