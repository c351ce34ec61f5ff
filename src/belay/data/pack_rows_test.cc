// Rows of sentences, from text to the rows that a model sees.

#include <gtest/gtest.h>

#include <set>

#include "belay/base/philox.h"
#include "belay/data/bpe_trainer.h"
#include "belay/data/pack.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

// Pages of English and Chinese sentences that begin with a capital or 第 and end with a mark.
std::string made_up_pages(std::uint64_t pages) {
  std::string lines;
  for (std::uint64_t page = 0; page < pages; ++page) {
    const PhiloxBlock draw = random_block({.seed = 31}, page);
    const bool chinese = page % 2 == 1;
    lines += "{\"text\":\"";
    for (std::uint64_t s = 0; s < 1 + draw[0] % 30; ++s) {
      const std::uint32_t words = 1 + random_block({.seed = 32000 + page}, s)[0] % 20;
      lines += chinese ? "第" : "The";
      for (std::uint32_t w = 0; w < words; ++w) lines += chinese ? "句话" : " word";
      lines += chinese ? "。" : ". ";
      if (s % 5 == 4) lines += "\\n";
    }
    lines += "\"}\n";
  }
  return lines;
}

PackOptions rows_options(const TestDirectory& directory, const std::string& pages,
                         std::int64_t row_len) {
  PackOptions options;
  options.inputs = {directory.write("pages.jsonl", pages)};
  options.out = directory.path("out");
  options.tokenizer = "bytes";
  options.row_len = row_len;
  options.overwrite = true;
  return options;
}

struct Row {
  std::vector<std::int32_t> tokens, targets, positions, doc_begin;
};

Row fill(const Dataset& dataset, std::int64_t sample) {
  const auto n = static_cast<std::size_t>(dataset.seq_len());
  Row row{std::vector<std::int32_t>(n), std::vector<std::int32_t>(n), std::vector<std::int32_t>(n),
          std::vector<std::int32_t>(n)};
  dataset.fill(sample, {row.tokens, row.targets, row.positions, row.doc_begin});
  return row;
}

TEST(PackRows, EveryPieceIsWholeSentencesAndTheReportIsTrue) {
  constexpr std::int64_t kRowLen = 1024;
  const TestDirectory directory;
  PackOptions options = rows_options(directory, made_up_pages(1500), kRowLen);
  options.append_eod = true;
  const PackReport report = pack(options);
  const Dataset dataset = Dataset::open(options.out, kRowLen);
  ASSERT_TRUE(dataset.packed_rows());
  std::int64_t counted = 0;
  std::int64_t padding = 0;
  std::int64_t pieces = 0;
  for (std::int64_t sample = 0; sample < dataset.samples(); ++sample) {
    const Row row = fill(dataset, sample);
    for (std::size_t begin = 0; begin < kRowLen;) {
      std::size_t end = begin;
      std::string text;
      for (; end < kRowLen && row.doc_begin[end] == static_cast<std::int32_t>(begin); ++end) {
        EXPECT_EQ(row.positions[end], static_cast<std::int32_t>(end - begin));
        if (row.tokens[end] < 256) text += static_cast<char>(row.tokens[end]);
        if (row.targets[end] >= 0) ++counted;
        if (end > begin && row.tokens[end] != dataset.max_id()) {
          EXPECT_EQ(row.targets[end - 1], row.tokens[end]);
        }
      }
      if (text.empty()) {
        EXPECT_EQ(end, kRowLen);
        padding += static_cast<std::int64_t>(end - begin);
      } else {
        ++pieces;
        EXPECT_TRUE(text.starts_with("The ") || text.starts_with("第")) << text;
        const bool whole = text.ends_with(". ") || text.ends_with(". \n") || text.ends_with("。") ||
                           text.ends_with("。\n");
        EXPECT_TRUE(whole) << text;
      }
      begin = end;
    }
  }
  // Also across cuts each token but a document's first is a target once.
  EXPECT_EQ(counted, dataset.tokens() - dataset.documents());
  ASSERT_TRUE(report.train.packing.has_value());
  const PackingFigures& figures = *report.train.packing;
  EXPECT_EQ(figures.rows, dataset.samples());
  EXPECT_EQ(report.train.pieces, pieces);
  EXPECT_NEAR(figures.padding_share,
              static_cast<double>(padding) / static_cast<double>(kRowLen * dataset.samples()),
              1e-9);
  EXPECT_LT(figures.padding_share, 0.005);
  EXPECT_EQ(figures.cut_share.value(), 0.0);
  EXPECT_GT(report.train.concat.cut_share.value(), 0.3);
  EXPECT_GT(report.train.document_per_row.padding_share, 0.1);
  EXPECT_GT(report.train.document_per_row.cut_share.value(), 0.3);
}

// What the report says of the other ways of packing is what packing so gives.
TEST(PackRows, TheComparisonIsWhatTheOthersGive) {
  const TestDirectory directory;
  PackOptions options = rows_options(directory, made_up_pages(300), 128);
  const PackReport report = pack(options);
  const auto cut_documents = [&](const Dataset& dataset) {
    const Dataset::Source source = dataset.sources().front();
    std::set<std::size_t> cut;
    for (std::int64_t sample = 0; sample * 128 < source.tokens.count; ++sample) {
      const auto at = static_cast<std::uint64_t>(sample) * 128;
      const auto next = std::upper_bound(source.starts.begin(), source.starts.end(), at);
      if (*std::prev(next) == at) continue;
      // Behind a mark, and the blank or line feed if there is one.
      std::string before;
      for (std::int64_t i = std::max<std::int64_t>(0, sample * 128 - 3); i < sample * 128; ++i) {
        before += static_cast<char>(source.tokens.at(i));
      }
      const bool mark = before.ends_with(". ") || before.ends_with(".") || before.ends_with("。") ||
                        before.ends_with("\n");
      if (!mark) cut.insert(static_cast<std::size_t>(next - source.starts.begin()));
    }
    return cut.size();
  };
  options.packing = Packing::concat;
  const PackReport plain = pack(options);
  const Dataset dataset = Dataset::open(options.out, 128);
  EXPECT_FALSE(dataset.packed_rows());
  EXPECT_EQ(report.train.concat.rows, dataset.samples());
  EXPECT_EQ(plain.train.concat.rows, dataset.samples());
  EXPECT_FALSE(plain.train.concat.cut_share.has_value());
  EXPECT_NEAR(report.train.concat.cut_share.value(),
              static_cast<double>(cut_documents(dataset)) / 300.0, 0.02);
}

TEST(PackRows, OutputDoesNotDependOnThreads) {
  const TestDirectory directory;
  PackOptions options = rows_options(directory, made_up_pages(6000), 64);
  options.val_out = directory.path("val");
  options.threads = 1;
  const auto files = [&] {
    const PackReport report = pack(options);
    std::string all = fmt::format("{} {}", report.train.packing->cut_share.value(),
                                  report.val->concat.cut_share.value());
    for (const char* name : {"out/pieces.bin", "out/rows.bin", "out/row_tokens.bin",
                             "val/pieces.bin", "val/row_tokens.bin"}) {
      all += directory.read(name);
    }
    return all;
  };
  const std::string one = files();
  for (const int threads : {2, 5}) {
    options.threads = threads;
    EXPECT_TRUE(files() == one);
  }
}

TEST(PackRows, TextWithoutSentencesIsCutWhereItMustBe) {
  const TestDirectory directory;
  const std::string text = std::string(1000, 'x') + "\",\"n\":1}\n";
  PackOptions options = rows_options(directory, "{\"text\":\"" + text + "{\"text\":\"\"}\n", 64);
  const PackReport report = pack(options);
  EXPECT_EQ(report.counters.documents_empty, 1);
  EXPECT_EQ(report.train.packing->rows, 16);
  EXPECT_EQ(report.train.packing->cut_share.value(), 1.0);
  EXPECT_EQ(report.train.concat.cut_share.value(), 1.0);
}

TEST(PackRows, TokenFilesAreReadThroughTheirTokenizer) {
  const TestDirectory directory;
  PackOptions options = rows_options(directory, made_up_pages(200), 128);
  options.append_eod = true;
  pack(options);
  const std::string rows = directory.read("out/row_tokens.bin");
  PackOptions again;
  again.inputs = {options.out};
  again.out = directory.path("again");
  again.row_len = 128;
  pack(again);
  EXPECT_TRUE(directory.read("again/row_tokens.bin") == rows);

  // Megatron files carry no tokenizer.
  again.out = directory.path("mega");
  again.row_len = 0;
  again.format = StoreFormat::megatron;
  pack(again);
  again.inputs = {directory.path("mega")};
  again.out = directory.path("third");
  again.format = StoreFormat::belay;
  again.row_len = 128;
  EXPECT_TRUE(contains(error_of([&] { pack(again); }, ExitCode::usage),
                       "--packing sentences needs the tokenizer"));
  EXPECT_FALSE(directory.exists("third"));
  again.packing = Packing::documents;
  EXPECT_GT(pack(again).train.packing->rows, 0);
}

TEST(PackRows, RowLengthsAreMultiplesOfSixteen) {
  const TestDirectory directory;
  PackOptions options = rows_options(directory, made_up_pages(5), 100);
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage),
                       "--seq-len 100: rows of sentences are a multiple of 16 tokens long; say 96 "
                       "or 112, or --packing documents"));
  options.row_len = 9;
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "say 16, or"));
  EXPECT_EQ(directory.entries(), 1);
}

}  // namespace
}  // namespace belay::data
