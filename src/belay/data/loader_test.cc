#include "belay/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "belay/data/pack.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

// A store whose documents are `lengths` bytes long, in the byte vocabulary.
std::string make_store(const TestDirectory& directory, const std::vector<std::size_t>& lengths) {
  std::string text;
  char letter = 'a';
  for (const std::size_t length : lengths) {
    text += "{\"text\":\"" + std::string(length, letter) + "\"}\n";
    letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1);
  }
  PackOptions options;
  options.inputs = {directory.write("in.jsonl", text)};
  options.out = directory.path("store");
  options.tokenizer = "bytes";
  options.overwrite = true;
  pack(options);
  return options.out;
}

TEST(Loader, ResumesInTheOrderOfTheUnbrokenRun) {
  const TestDirectory directory;
  const Dataset dataset = Dataset::open(make_store(directory, {80}), 8);
  ASSERT_EQ(dataset.samples(), 10);
  const SampleOrder order(11, dataset.samples());
  constexpr std::int64_t kSteps = 15;  // of 2 rows: 3 epochs
  const auto run = [&](std::int64_t first_step, int workers) {
    Loader loader(dataset, order, {.rows = 2, .start = 2 * first_step, .workers = workers});
    std::vector<std::int64_t> samples;
    for (std::int64_t step = first_step; step < kSteps; ++step) {
      const Batch& batch = loader.next();
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
    return samples;
  };
  const std::vector<std::int64_t> unbroken = run(0, 0);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    const auto begin = unbroken.begin() + static_cast<std::ptrdiff_t>(10 * epoch);
    EXPECT_EQ(std::set(begin, begin + 10).size(), 10U) << "epoch " << epoch;
  }
  EXPECT_EQ(run(0, 2), unbroken);
  for (const std::int64_t stop : {3, 5, 7, 12}) {
    for (const int workers : {0, 1, 2}) {
      const std::vector<std::int64_t> rest(unbroken.begin() + 2 * stop, unbroken.end());
      EXPECT_EQ(run(stop, workers), rest) << "stop " << stop << ", workers " << workers;
    }
  }
}

TEST(Loader, BatchesHoldTheRowsOfTheirSamples) {
  const TestDirectory directory;
  const Dataset dataset = Dataset::open(make_store(directory, {13, 30, 7, 50}), 8);
  const SampleOrder order(3, dataset.samples());
  Loader loader(dataset, order, {.rows = 3, .depth = 2, .workers = 2});
  std::vector<std::int32_t> row(4 * 8);
  for (int step = 0; step < 40; ++step) {
    const Batch& batch = loader.next();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.tokens.data()) % 128, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.doc_begin.data()) % 128, 0U);
    std::int64_t counted = 0;
    for (std::size_t r = 0; r < 3; ++r) {
      const std::span<std::int32_t> all(row);
      const RowSpans spans{all.subspan(0, 8), all.subspan(8, 8), all.subspan(16, 8),
                           all.subspan(24, 8)};
      counted += dataset.fill(batch.samples[r], spans);
      EXPECT_TRUE(std::ranges::equal(batch.tokens.subspan(8 * r, 8), spans.tokens));
      EXPECT_TRUE(std::ranges::equal(batch.targets.subspan(8 * r, 8), spans.targets));
      EXPECT_TRUE(std::ranges::equal(batch.positions.subspan(8 * r, 8), spans.positions));
      EXPECT_TRUE(std::ranges::equal(batch.doc_begin.subspan(8 * r, 8), spans.doc_begin));
    }
    EXPECT_EQ(batch.counted, counted);
    EXPECT_EQ(batch.counted, std::ranges::count_if(batch.targets, [](auto t) { return t >= 0; }));
  }
}

// Ranks whose shares of a step differ take each of its rows once, step after step.
TEST(Loader, UnequalSharesOfAStep) {
  const TestDirectory directory;
  const Dataset dataset = Dataset::open(make_store(directory, {1003}), 32);
  const SampleOrder order(5, dataset.samples());
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kRanks = 3;
  constexpr std::int64_t kBatches = 4;  // of a step: two for the first rank, one for the others
  for (std::int64_t step = 0; step < 5; ++step) {
    std::multiset<std::int64_t> expected;
    for (std::int64_t row = 0; row < kBatches * kRows; ++row) {
      expected.insert(order.at(100 + step * kBatches * kRows + row));
    }
    std::multiset<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      const std::int64_t share = rank == 0 ? 2 : 1;
      Loader loader(dataset, order,
                    {.rows = kRows,
                     .start = 100,
                     .stride = kRows * kRanks,
                     .offset = kRows * rank,
                     .per_step = share,
                     .step_rows = kBatches * kRows});
      for (std::int64_t b = 0; b < (step + 1) * share; ++b) {
        const Batch& batch = loader.next();
        if (b < step * share) continue;
        seen.insert(batch.samples.begin(), batch.samples.end());
      }
    }
    EXPECT_EQ(seen, expected) << "step " << step;
  }
}

TEST(Loader, EvaluationCountsTheSameTokensForAnyBatchAndRankCount) {
  const TestDirectory directory;
  const Dataset dataset = Dataset::open(make_store(directory, {1003}), 32);
  EXPECT_EQ(dataset.tokens(), 1003);
  EXPECT_EQ(dataset.counted(), 1002);
  for (const std::int64_t rows : {1, 2, 8}) {
    for (const std::int64_t ranks : {1, 2, 5}) {
      std::int64_t counted = 0;
      std::vector<std::int64_t> samples;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Loader loader(dataset, {.rows = rows, .stride = rows * ranks, .offset = rows * rank});
        for (std::int64_t b = 0; b < loader.batches(); ++b) {
          const Batch& batch = loader.next();
          counted += batch.counted;
          for (const std::int64_t sample : batch.samples) {
            if (sample >= 0) samples.push_back(sample);
          }
        }
      }
      EXPECT_EQ(counted, 1002) << rows << " rows, " << ranks << " ranks";
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples.size(), 32U);
      EXPECT_EQ(std::set(samples.begin(), samples.end()).size(), 32U);
    }
  }
}

TEST(Loader, ASecondPassRepeatsTheFirst) {
  const TestDirectory directory;
  const Dataset dataset = Dataset::open(make_store(directory, {40}), 8);
  Loader loader(dataset, {.rows = 2});
  ASSERT_EQ(loader.batches(), 3);
  std::vector<std::int64_t> samples;
  for (int b = 0; b < 6; ++b) {
    const Batch& batch = loader.next();
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  }
  EXPECT_EQ(samples, (std::vector<std::int64_t>{0, 1, 2, 3, 4, -1, 0, 1, 2, 3, 4, -1}));
}

TEST(Loader, ABatchMayHaveNothingToCount) {
  const TestDirectory directory;
  // Documents of one token have no next token to predict.
  const Dataset dataset = Dataset::open(make_store(directory, {1, 1, 1, 1}), 4);
  Loader loader(dataset, {.rows = 2});
  const Batch& batch = loader.next();
  EXPECT_EQ(batch.counted, 0);
  EXPECT_TRUE(std::ranges::all_of(batch.targets, [](auto target) { return target == -1; }));
}

TEST(Loader, AnErrorComesOutOfNext) {
  const TestDirectory directory;
  const std::string store = make_store(directory, {40});
  std::string tokens = directory.read("store/tokens.bin");
  tokens[kStoreHeaderBytes + 2 * 20] = '\xff';  // the header says that 'a' is the largest
  directory.write("store/tokens.bin", tokens);
  const Dataset dataset = Dataset::open(store, 8);
  for (const int workers : {0, 2}) {
    Loader loader(dataset, {.rows = 1, .workers = workers});
    loader.next();
    loader.next();
    const std::string message = error_of([&] { loader.next(); });
    EXPECT_TRUE(contains(message, "tokens.bin: document 0 holds id 255 at its token 20"));
  }
}

}  // namespace
}  // namespace belay::data
