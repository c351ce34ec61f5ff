// Training on rows that `belay pack --seq-len` made.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/file.h"
#include "belay/base/philox.h"
#include "belay/data/dataset.h"
#include "belay/data/pack.h"
#include "belay/data/test_files.h"
#include "belay/train/program_harness.h"
#include "belay/train/trainer.h"

namespace belay {
namespace {

constexpr std::int64_t kRowLen = 64;

// Documents of short sentences in the byte vocabulary; ids end at 256, the end of a document.
std::string packed_store(const data::TestDirectory& directory) {
  std::string lines;
  for (std::uint64_t page = 0; page < 12; ++page) {
    lines += "{\"text\":\"";
    for (std::uint64_t s = 0; s < 1 + page; ++s) {
      const std::uint32_t words = 1 + random_block({.seed = 4000 + page}, s)[0] % 7;
      lines += "The";
      for (std::uint32_t w = 0; w < words; ++w) lines += " end";
      lines += ". ";
    }
    lines += "\"}\n";
  }
  data::PackOptions options;
  options.inputs = {directory.write("pages.jsonl", lines)};
  options.out = directory.path("store");
  options.tokenizer = "bytes";
  options.append_eod = true;
  options.row_len = kRowLen;
  options.overwrite = true;
  data::pack(options);
  return options.out;
}

TestBatch read_rows(const data::Dataset& dataset) {
  TestBatch batch{dataset.samples(), kRowLen, {}, {}, {}, {}};
  const auto count = static_cast<std::size_t>(batch.rows * kRowLen);
  for (auto* values : {&batch.tokens, &batch.targets, &batch.positions, &batch.doc_begin}) {
    values->resize(count);
  }
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const auto part = [&](std::vector<std::int32_t>& values) {
      return std::span(values).subspan(static_cast<std::size_t>(row * kRowLen), kRowLen);
    };
    dataset.fill(row, {part(batch.tokens), part(batch.targets), part(batch.positions),
                       part(batch.doc_begin)});
  }
  return batch;
}

// Every segment of the batch in a row of its own, its labels as they are.
TestBatch pieces_alone(const TestBatch& packed) {
  TestBatch alone{0, kRowLen, {}, {}, {}, {}};
  for (std::int64_t row = 0; row < packed.rows; ++row) {
    for (std::int64_t begin = 0; begin < kRowLen;) {
      const std::int64_t base = row * kRowLen;
      const auto at = [&](const std::vector<std::int32_t>& values, std::int64_t i) {
        return values[static_cast<std::size_t>(base + i)];
      };
      std::int64_t end = begin;
      while (end < kRowLen && at(packed.doc_begin, end) == begin) ++end;
      const std::int64_t length = end - begin;
      for (std::int64_t i = 0; i < kRowLen; ++i) {
        const bool inside = i < length;
        alone.tokens.push_back(inside ? at(packed.tokens, begin + i) : 0);
        alone.targets.push_back(inside ? at(packed.targets, begin + i) : -1);
        alone.positions.push_back(static_cast<std::int32_t>(inside ? i : i - length));
        alone.doc_begin.push_back(static_cast<std::int32_t>(inside ? 0 : length));
      }
      ++alone.rows;
      begin = end;
    }
  }
  return alone;
}

class PackedRowsTest : public testing::TestWithParam<Family> {};

TEST_P(PackedRowsTest, LossIsThatOfThePiecesAlone) {
  const data::TestDirectory directory;
  const TestBatch packed = read_rows(data::Dataset::open(packed_store(directory), kRowLen));
  const TestBatch alone = pieces_alone(packed);
  EXPECT_GT(alone.rows, packed.rows);
  EXPECT_EQ(alone.counted(), packed.counted());
  ModelConfig model = family_defaults(GetParam());
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.ffn = 48;
  model.vocab = 257;
  model.seq_len = kRowLen;
  finish_config(model);
  ProgramHarness harness(model, "cpu", DType::f32, 1, kRowLen);
  harness.initialise(3);
  const double expected = harness.loss_sum(alone, 1, false);
  EXPECT_NEAR(harness.loss_sum(packed, 1, false), expected, 1e-6 * expected);
}

INSTANTIATE_TEST_SUITE_P(Families, PackedRowsTest,
                         testing::Values(Family::gpt2, Family::llama, Family::qwen2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

std::vector<nlohmann::json> train_an_epoch(const std::string& store, const std::string& out,
                                           std::int64_t steps) {
  const RunConfig config = parse_config(
      R"(
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 257
seq_len = 64
[train]
micro_batch = 1
global_batch = 1
[optimizer]
lr = 1e-3
[observe]
console_every = 0
[machine]
matmul = "belay"
)",
      "test", {"data.train=\"" + store + "\"", "train.steps=" + std::to_string(steps)});
  TrainOptions options;
  options.out = out;
  EXPECT_TRUE(train(config, options).finished);
  std::vector<nlohmann::json> records;
  std::ifstream file(out + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("loss")) records.push_back(record);
  }
  return records;
}

TEST(PackedRows, AnEpochCountsEachTokenOnceAndPaddingNotAtAll) {
  const data::TestDirectory directory;
  const std::string store = packed_store(directory);
  const data::Dataset dataset = data::Dataset::open(store, kRowLen);
  ASSERT_TRUE(dataset.packed_rows());
  EXPECT_GT(dataset.padding_share(), 0.0);
  const auto first = train_an_epoch(store, directory.path("first"), dataset.samples());
  std::int64_t counted = 0;
  for (const auto& record : first) counted += record["counted_tokens"].get<std::int64_t>();
  EXPECT_EQ(counted, dataset.tokens() - dataset.documents());

  // Whatever padding is filled with, nothing changes by a bit.
  std::string meta = read_file(store + "/meta.json");
  const std::string pad = "\"pad_id\": 256";
  ASSERT_NE(meta.find(pad), std::string::npos);
  write_file(store + "/meta.json", meta.replace(meta.find(pad), pad.size(), "\"pad_id\": 7"));
  const auto second = train_an_epoch(store, directory.path("second"), dataset.samples());
  ASSERT_EQ(first.size(), second.size());
  ASSERT_EQ(std::ssize(first), dataset.samples());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i]["loss"], second[i]["loss"]);
    EXPECT_EQ(first[i]["grad_norm"], second[i]["grad_norm"]);
  }
}

}  // namespace
}  // namespace belay
