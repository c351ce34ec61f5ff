#include "belay/parallel/compressed_reducer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "belay/base/allocation_count.h"
#include "belay/comm/thread_ranks.h"
#include "belay/parallel/test_table.h"

namespace belay {
namespace {

using comm::Compression;
using comm::CompressionLevel;

constexpr Compression kModes[] = {Compression::topk, Compression::int8, Compression::topk_int8};

// Matrices of awkward sizes, a vector and a small matrix.
ParameterTable awkward_table() {
  return testing::table_of({{"wide", {7, 431}},
                            {"norm", {300}},
                            {"tall", {1031, 3}},
                            {"little", {9, 9}},
                            {"even", {64, 64}}});
}

// Gradients of a rank, parameter by parameter; `step` makes them differ.
using Gradients = std::vector<std::vector<float>>;
Gradients gradients_of(const ParameterTable& table, int rank, int step, float scale = 1) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step));
  std::normal_distribution<float> normal(0, 1);
  Gradients gradients;
  for (const Parameter& parameter : table.all()) {
    gradients.emplace_back(static_cast<std::size_t>(parameter.elements()));
    for (float& value : gradients.back()) value = scale * normal(random);
  }
  return gradients;
}

struct Case {
  int ranks = 2;
  CompressionOptions options;
  std::int64_t bucket = 2500;
  std::vector<int> domain_of = {};
};

// One rank's reducer, and the cutting into buckets.
class Rank {
 public:
  Rank(comm::Communicator& communicator, const ParameterTable& table, const Case& test)
      : communicator_(communicator),
        table_(table),
        reducer_(communicator, table, 8192, test.options, compressible(table)),
        bucket_(static_cast<float*>(communicator.allocate(8192 * sizeof(float)))) {}
  ~Rank() { communicator_.deallocate(bucket_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // The sums over the ranks take the place of the gradients.
  void step(Gradients& gradients, std::int64_t bucket_elements, bool counts = true,
            double unit = 1) {
    reducer_.begin_step(unit);
    std::vector<BucketPiece> pieces;
    std::int64_t used = 0;
    const auto flush = [&] {
      if (used == 0) return;
      reducer_.reduce({bucket_, static_cast<std::size_t>(used)}, pieces);
      for (const BucketPiece& piece : pieces) {
        std::copy_n(bucket_ + piece.at, piece.count,
                    gradients[static_cast<std::size_t>(piece.parameter)].begin() + piece.begin);
      }
      pieces.clear();
      used = 0;
    };
    for (int index = table_.size() - 1; index >= 0; --index) {
      const std::vector<float>& values = gradients[static_cast<std::size_t>(index)];
      for (std::int64_t begin = 0; begin < std::ssize(values);) {
        const std::int64_t count = std::min(std::ssize(values) - begin, bucket_elements - used);
        std::copy_n(values.begin() + begin, count, bucket_ + used);
        pieces.push_back({index, begin, count, used, begin + count == std::ssize(values)});
        used += count;
        begin += count;
        if (used == bucket_elements) flush();
      }
    }
    flush();
    reducer_.end_step(counts);
  }

  [[nodiscard]] std::vector<float> residual(int parameter, double unit = 1) {
    std::vector<float> values(static_cast<std::size_t>(table_[parameter].elements()));
    reducer_.residuals().read(parameter, unit, values);
    return values;
  }
  CompressedReducer& reducer() { return reducer_; }

 private:
  comm::Communicator& communicator_;
  const ParameterTable& table_;
  CompressedReducer reducer_;
  float* bucket_;
};

void on_ranks(const Case& test, const std::function<void(comm::Communicator&)>& body) {
  comm::CommunicatorOptions options;
  options.layout.domain_of = test.domain_of;
  comm::expect_no_errors(comm::run_ranks(test.ranks, options, body));
}

// What every rank has after some steps: sums and residuals.
struct Outcome {
  Gradients sums;
  Gradients residuals;  // empty where a parameter has none
};

// `bucket_of` a step.
std::vector<Outcome> run(const Case& test, int steps,
                         const std::function<std::int64_t(int)>& bucket_of) {
  const ParameterTable table = awkward_table();
  std::vector<Outcome> outcomes(static_cast<std::size_t>(test.ranks));
  on_ranks(test, [&](comm::Communicator& communicator) {
    Rank rank(communicator, table, test);
    Outcome& outcome = outcomes[static_cast<std::size_t>(communicator.rank())];
    for (int step = 0; step < steps; ++step) {
      outcome.sums = gradients_of(table, communicator.rank(), step);
      rank.step(outcome.sums, bucket_of(step));
    }
    for (int index = 0; index < table.size(); ++index) {
      const bool has = rank.reducer().residuals().has(index);
      outcome.residuals.push_back(has ? rank.residual(index) : std::vector<float>());
    }
  });
  return outcomes;
}

std::vector<Outcome> run(const Case& test, int steps = 1) {
  return run(test, steps, [&](int) { return test.bucket; });
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Compression mode : kModes) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const std::int64_t bucket : {700, 2500, 8192}) {
        cases.push_back({ranks, {mode, CompressionLevel::all, 0.07}, bucket, {}});
      }
    }
    cases.push_back({4, {mode, CompressionLevel::slow, 0.07}, 2500, {0, 0, 1, 1}});
    cases.push_back({5, {mode, CompressionLevel::slow, 0.07}, 8192, {0, 1, 0, 2, 0}});
    cases.push_back({3, {mode, CompressionLevel::slow, 0.07}, 700, {}});
  }
  return cases;
}

std::string describe(const Case& test) {
  return fmt::format("{} on {} ranks, {} between {} domains, buckets of {}",
                     name_of(test.options.mode), test.ranks, name_of(test.options.level),
                     test.domain_of.size(), test.bucket);
}

TEST(CompressedReducerTest, AllRanksGetTheSameBitsAndEveryRunTheSame) {
  for (const Case& test : all_cases()) {
    SCOPED_TRACE(describe(test));
    const std::vector<Outcome> outcomes = run(test, 3);
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.sums == outcomes[0].sums);
    const std::vector<Outcome> again = run(test, 3);
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      EXPECT_TRUE(again[rank].sums == outcomes[rank].sums);
      EXPECT_TRUE(again[rank].residuals == outcomes[rank].residuals);
    }
  }
}

// All that was ever in a gradient has been sent or is owed.
TEST(CompressedReducerTest, NothingIsLost) {
  const ParameterTable table = awkward_table();
  for (const Case& test : all_cases()) {
    SCOPED_TRACE(describe(test));
    const std::vector<Outcome> outcomes = run(test);
    std::vector<Gradients> given;
    for (int rank = 0; rank < test.ranks; ++rank) given.push_back(gradients_of(table, rank, 0));
    for (std::size_t p = 0; p < static_cast<std::size_t>(table.size()); ++p) {
      for (std::size_t i = 0; i < given[0][p].size(); ++i) {
        double owed = 0;
        double total = 0;
        for (std::size_t rank = 0; rank < given.size(); ++rank) {
          total += static_cast<double>(given[rank][p][i]);
          if (!outcomes[rank].residuals[p].empty()) {
            owed += static_cast<double>(outcomes[rank].residuals[p][i]);
          }
        }
        ASSERT_NEAR(static_cast<double>(outcomes[0].sums[p][i]) + owed, total, 1e-5)
            << table[static_cast<int>(p)].name << " " << i;
      }
    }
  }
}

// With one rank a value is sent or owed, and whichever it is, exactly.
TEST(CompressedReducerTest, TopKSplitsToTheBit) {
  const ParameterTable table = awkward_table();
  const Outcome outcome = run({1, {Compression::topk, CompressionLevel::all, 0.05}}).front();
  const Gradients given = gradients_of(table, 0, 0);
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < given[0].size(); ++i) {
    const float value = outcome.sums[0][i];
    EXPECT_EQ(value + outcome.residuals[0][i], given[0][i]);
    EXPECT_TRUE(value == 0 || outcome.residuals[0][i] == 0);
    if (value != 0) ++sent;
  }
  EXPECT_NEAR(static_cast<double>(sent), 0.05 * static_cast<double>(given[0].size()), 2);
}

TEST(CompressedReducerTest, VectorsAndSmallMatricesAreSummedAsTheyAre) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const std::vector<Outcome> outcomes = run({2, {mode}});
    for (const int index : {1, 3}) {
      const auto p = static_cast<std::size_t>(index);
      const std::vector<float> first = gradients_of(table, 0, 0)[p];
      const std::vector<float> second = gradients_of(table, 1, 0)[p];
      for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(outcomes[0].sums[p][i], first[i] + second[i]);
      }
      EXPECT_TRUE(outcomes[0].residuals[p].empty());
    }
  }
}

TEST(CompressedReducerTest, EightBitsAreWithinTheirBound) {
  const ParameterTable table = awkward_table();
  const int ranks = 4;
  const std::vector<Outcome> outcomes = run({ranks, {Compression::int8}});
  float largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::vector<float>& values : gradients_of(table, rank, 0)) {
      for (const float value : values) largest = std::max(largest, std::abs(value));
    }
  }
  // Every rank but the owner rounds what it sends, and the owner the sum.
  const double bound = (ranks - 1 + ranks) * static_cast<double>(largest) / 254 * 1.001;
  for (const int index : {0, 2, 4}) {
    const auto p = static_cast<std::size_t>(index);
    for (std::size_t i = 0; i < outcomes[0].sums[p].size(); ++i) {
      double exact = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        exact += static_cast<double>(gradients_of(table, rank, 0)[p][i]);
      }
      ASSERT_NEAR(static_cast<double>(outcomes[0].sums[p][i]), exact, bound);
      if (i > 50) break;
    }
  }
}

// What is owed is owed by elements of parameters, however the next step cuts them.
TEST(CompressedReducerTest, ResidualsSurviveOtherBuckets) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    for (const Case& test : {Case{3, {mode, CompressionLevel::all, 0.07}},
                             Case{4, {mode, CompressionLevel::slow, 0.07}, 2500, {0, 0, 1, 1}}}) {
      SCOPED_TRACE(describe(test));
      constexpr int kSteps = 4;
      std::vector<Gradients> sums(kSteps);
      std::vector<Gradients> owed(static_cast<std::size_t>(test.ranks));
      on_ranks(test, [&](comm::Communicator& communicator) {
        Rank rank(communicator, table, test);
        for (int step = 0; step < kSteps; ++step) {
          Gradients gradients = gradients_of(table, communicator.rank(), step);
          rank.step(gradients, 500 + 1111 * step);
          if (communicator.rank() == 0) sums[static_cast<std::size_t>(step)] = gradients;
        }
        for (const int index : {0, 2, 4}) {
          owed[static_cast<std::size_t>(communicator.rank())].push_back(rank.residual(index));
        }
      });
      for (std::size_t which = 0; which < 3; ++which) {
        const std::size_t p = 2 * which;
        for (std::size_t i = 0; i < owed[0][which].size(); ++i) {
          double given = 0;
          double got = 0;
          for (int step = 0; step < kSteps; ++step) {
            got += static_cast<double>(sums[static_cast<std::size_t>(step)][p][i]);
          }
          for (int rank = 0; rank < test.ranks; ++rank) {
            got += static_cast<double>(owed[static_cast<std::size_t>(rank)][which][i]);
          }
          if (i % 97 != 0) continue;
          for (int rank = 0; rank < test.ranks; ++rank) {
            for (int step = 0; step < kSteps; ++step) {
              given += static_cast<double>(gradients_of(table, rank, step)[p][i]);
            }
          }
          ASSERT_NEAR(got, given, 1e-4) << p << " " << i;
        }
      }
    }
  }
}

// Pieces of a parameter may come in any order, and a step may sum several times.
TEST(CompressedReducerTest, PiecesComeInAnyOrderAndMoreThanOnce) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const Case test{2, {mode, CompressionLevel::all, 0.07}};
    on_ranks(test, [&](comm::Communicator& communicator) {
      Rank forth(communicator, table, test);
      Rank back(communicator, table, test);
      const BucketPiece head{4, 0, 2048, 0, false};
      const BucketPiece tail{4, 2048, 2048, 0, true};
      for (int step = 0; step < 3; ++step) {
        forth.reducer().begin_step(1);
        back.reducer().begin_step(1);
        for (int round = 0; round < 2; ++round) {
          const std::vector<float> values =
              gradients_of(table, communicator.rank(), 10 * step + round)[4];
          const auto reduce = [&](Rank& rank, const BucketPiece& piece) {
            std::vector<float> part(values.begin() + piece.begin,
                                    values.begin() + piece.begin + piece.count);
            rank.reducer().reduce(part, {&piece, 1});
            return part;
          };
          const std::vector<float> head_first = reduce(forth, head);
          const std::vector<float> tail_second = reduce(forth, tail);
          EXPECT_EQ(reduce(back, tail), tail_second) << step << " " << round;
          EXPECT_EQ(reduce(back, head), head_first) << step << " " << round;
        }
        forth.reducer().end_step(step != 1);
        back.reducer().end_step(step != 1);
        EXPECT_EQ(forth.residual(4), back.residual(4));
      }
    });
  }
}

TEST(CompressedReducerTest, AStepThatIsSkippedNeverWas) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const Case test{2, {mode, CompressionLevel::all, 0.07}};
    on_ranks(test, [&](comm::Communicator& communicator) {
      Rank rank(communicator, table, test);
      const int own = communicator.rank();
      Gradients first = gradients_of(table, own, 0);
      rank.step(first, 2500);
      const std::vector<float> before = rank.residual(0);
      Gradients bad = gradients_of(table, own, 1);
      if (own == 1) bad[0][5] = std::numeric_limits<float>::infinity();
      rank.step(bad, 2500, false);
      EXPECT_EQ(rank.residual(0), before);
      Gradients next = gradients_of(table, own, 2);
      rank.step(next, 2500);
      Rank other(communicator, table, test);
      for (const int step : {0, 2}) {
        Gradients again = gradients_of(table, own, step);
        other.step(again, 2500);
        if (step == 2) {
          EXPECT_TRUE(again == next);
        }
      }
    });
  }
}

// One rank has one bad number: all see it, in the parameter that has it and in no other.
TEST(CompressedReducerTest, BadNumbersComeThrough) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
      for (const int index : {0, 1, 4}) {
        const Case test{3, {mode, CompressionLevel::all, 0.07}};
        on_ranks(test, [&](comm::Communicator& communicator) {
          Rank rank(communicator, table, test);
          Gradients gradients = gradients_of(table, communicator.rank(), 0);
          if (communicator.rank() == 2) gradients[static_cast<std::size_t>(index)].back() = bad;
          rank.step(gradients, 2500);
          for (int p = 0; p < table.size(); ++p) {
            const std::vector<float>& sums = gradients[static_cast<std::size_t>(p)];
            const bool all_finite = std::all_of(sums.begin(), sums.end(),
                                                [](float value) { return std::isfinite(value); });
            EXPECT_EQ(all_finite, p != index) << table[p].name;
          }
        });
      }
    }
  }
}

// Losses multiplied by a power of two give sums multiplied by it, whatever was owed before.
TEST(CompressedReducerTest, ResidualsFollowTheLossMultiplier) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const Case test{2, {mode, CompressionLevel::all, 0.07}};
    on_ranks(test, [&](comm::Communicator& communicator) {
      Rank scaled(communicator, table, test);
      Rank plain(communicator, table, test);
      float unit = 1;
      for (int step = 0; step < 4; ++step, unit *= step % 2 == 0 ? 0.25F : 16.0F) {
        Gradients small = gradients_of(table, communicator.rank(), step);
        Gradients large = gradients_of(table, communicator.rank(), step, unit);
        plain.step(small, 2500);
        scaled.step(large, 2500, true, static_cast<double>(unit));
        for (std::size_t p = 0; p < small.size(); ++p) {
          for (std::size_t i = 0; i < small[p].size(); ++i) {
            ASSERT_EQ(small[p][i] * unit, large[p][i]) << step << " " << p << " " << i;
          }
        }
      }
      EXPECT_EQ(scaled.residual(0), plain.residual(0));
    });
  }
}

TEST(CompressedReducerTest, ResidualsStayBounded) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const Case test{2, {mode, CompressionLevel::all, 0.1}};
    on_ranks(test, [&](comm::Communicator& communicator) {
      Rank rank(communicator, table, test);
      const auto norm = [&] {
        double squares = 0;
        for (const float value : rank.residual(4)) {
          squares += static_cast<double>(value) * static_cast<double>(value);
        }
        return std::sqrt(squares);
      };
      double largest_early = 0;
      for (int step = 0; step < 1000; ++step) {
        Gradients gradients = gradients_of(table, communicator.rank(), step % 7);
        rank.step(gradients, 8192);
        if (step < 100) largest_early = std::max(largest_early, norm());
      }
      EXPECT_LE(norm(), 1.5 * largest_early);
      // With a contraction of 1 - ratio the norm stays below |g| (1 + sqrt(1 - ratio)) / ratio.
      EXPECT_LE(norm(), 64.0 * (1 + std::sqrt(0.9)) / 0.1);
    });
  }
}

// Once a bucket of its kind has been reduced.
TEST(CompressedReducerTest, AllocatesNothingInTheSteadyState) {
  const ParameterTable table = awkward_table();
  for (const Compression mode : kModes) {
    const std::vector<Case> cases = {{2, {mode, CompressionLevel::all, 0.1}},
                                     {4, {mode, CompressionLevel::slow, 0.1}, 2500, {0, 0, 1, 1}}};
    for (const Case& test : cases) {
      on_ranks(test, [&](comm::Communicator& communicator) {
        Rank rank(communicator, table, test);
        std::vector<float> bucket(4177, 1.5F);
        const BucketPiece pieces[] = {{4, 0, 4096, 0, true}, {3, 0, 81, 4096, true}};
        const auto step = [&] {
          rank.reducer().begin_step(1);
          rank.reducer().reduce(bucket, pieces);
          rank.reducer().end_step(true);
          communicator.barrier();
        };
        step();
        const std::int64_t before = allocation_count();
        communicator.barrier();
        for (int i = 0; i < 3; ++i) step();
        const std::int64_t after = allocation_count();
        communicator.barrier();
        EXPECT_EQ(after, before) << describe(test);
      });
    }
  }
}

TEST(CompressedReducerTest, CountsWhatIsSent) {
  const ParameterTable table = awkward_table();
  const std::pair<Compression, double> saved[] = {
      {Compression::int8, 0.6}, {Compression::topk, 0.75}, {Compression::topk_int8, 0.85}};
  for (const auto& entry : saved) {
    const Compression mode = entry.first;
    const double least = entry.second;
    const Case test{2, {mode, CompressionLevel::all, 0.1}};
    on_ranks(test, [&](comm::Communicator& communicator) {
      Rank rank(communicator, table, test);
      Gradients gradients = gradients_of(table, communicator.rank(), 0);
      rank.step(gradients, 8192);
      const BucketTraffic& traffic = rank.reducer().traffic();
      EXPECT_EQ(traffic.dense_bytes, sum_traffic(table.parameter_count(), 2));
      EXPECT_LT(traffic.sent_bytes, (1 - least) * traffic.dense_bytes);
      EXPECT_GT(traffic.sent_bytes, 0);
    });
  }
}

}  // namespace
}  // namespace belay
