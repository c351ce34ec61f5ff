// The bits of sums over numbers that round: the same on all ranks, in all runs, and in order-stable
// mode for all algorithms.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "belay/comm/element_values.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

// Numbers of which no two orders of adding give the same sum.
float rough_value(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i * 31 + rank * 17)) *
         std::ldexp(1.0F, static_cast<int>((i + rank * 7) % 24) - 12);
}

using Bits = std::vector<std::uint16_t>;

// The bits of every rank's result of a sum over rough values.
std::vector<Bits> all_reduce_bits(int p, const CommunicatorOptions& options, DType dtype,
                                  std::int64_t count, int repeats) {
  std::vector<Bits> results(static_cast<std::size_t>(p));
  expect_no_errors(run_ranks(p, options, [&](Communicator& comm) {
    std::vector<std::uint16_t>& bits = results[static_cast<std::size_t>(comm.rank())];
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    std::vector<double> input(bytes / sizeof(double) + 1);
    std::vector<double> output(input.size());
    for (std::int64_t i = 0; i < count; ++i) {
      set(input.data(), dtype, i, static_cast<double>(rough_value(comm.rank(), i)));
    }
    for (int repeat = 0; repeat < repeats; ++repeat) {
      comm.all_reduce(input.data(), output.data(), count, dtype, ReduceOp::sum);
      Bits now(bytes / sizeof(std::uint16_t));
      std::memcpy(now.data(), output.data(), bytes);
      if (repeat > 0) {
        EXPECT_EQ(now, bits) << "repeat " << repeat;
      }
      bits = now;
    }
  }));
  return results;
}

TEST(Executor, AllRanksAndRunsHaveTheSameBits) {
  for (const int p : {3, 6, 8}) {
    for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        CommunicatorOptions options;
        options.chooser = always({algorithm, 3});
        options.layout.domain_of.resize(static_cast<std::size_t>(p));
        for (std::size_t rank = 3; rank < options.layout.domain_of.size(); ++rank) {
          options.layout.domain_of[rank] = 1;
        }
        const auto results = all_reduce_bits(p, options, dtype, 301, 3);
        for (const Bits& bits : results) EXPECT_EQ(bits, results[0]) << name_of(algorithm);
        const auto again = all_reduce_bits(p, options, dtype, 301, 1);
        EXPECT_EQ(again[0], results[0]) << name_of(algorithm);
      }
    }
  }
}

TEST(Executor, OrderStableSumsHaveTheSameBitsHoweverTheyAreMade) {
  for (const int p : {3, 4, 7}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      CommunicatorOptions options;
      options.order_stable = true;
      options.chooser = always({Algorithm::direct});
      const auto expected = all_reduce_bits(p, options, dtype, 301, 1);
      const std::size_t words = size_of(dtype) / 2;
      for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
        for (const bool mapped : {false, true}) {
          options.chooser = always({algorithm, 2});
          options.layout = {};
          for (int rank = 0; mapped && rank < p; ++rank) {
            options.layout.ring.push_back((rank * 2 + 1) % p);
            options.layout.domain_of.push_back(rank % 2);
          }
          if (mapped && p % 2 == 0) options.layout.ring = {2, 0, 3, 1};
          const auto results = all_reduce_bits(p, options, dtype, 301, 1);
          for (const Bits& bits : results) EXPECT_EQ(bits, expected[0]) << name_of(algorithm);
          // A smaller bucket holds the same first elements.
          const auto smaller = all_reduce_bits(p, options, dtype, 53, 1);
          EXPECT_EQ(smaller[0],
                    Bits(expected[0].begin(),
                         expected[0].begin() + static_cast<std::ptrdiff_t>(53 * words)));
        }
      }
    }
  }
  // And without it they do differ: the values are rough enough.
  CommunicatorOptions ring;
  ring.chooser = always({Algorithm::ring});
  CommunicatorOptions direct;
  direct.chooser = always({Algorithm::direct});
  EXPECT_NE(all_reduce_bits(7, ring, DType::f32, 301, 1)[0],
            all_reduce_bits(7, direct, DType::f32, 301, 1)[0]);
}

// A bf16 sum is the rounded f32 sum, whatever the algorithm: one rounding.
TEST(Executor, SumsOfBf16AreRoundedOnce) {
  constexpr int kRanks = 9;
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    CommunicatorOptions options;
    options.chooser = always({algorithm, 2});
    expect_no_errors(run_ranks(kRanks, options, [](Communicator& comm) {
      // 1 + 8 * 2^-8: every single addition in bf16 would be lost.
      std::vector<Bf16> values(40, to_bf16(comm.rank() == 4 ? 1.0F : 0x1p-8F));
      comm.all_reduce(values.data(), values.data(), 40, DType::bf16, ReduceOp::sum);
      for (const Bf16 value : values) ASSERT_EQ(to_float(value), 1.03125F);
    }));
  }
}

TEST(Executor, ErrorsStayWithinTheBound) {
  constexpr int kRanks = 7;
  constexpr std::int64_t kCount = 501;
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    CommunicatorOptions options;
    options.chooser = always({algorithm, 2});
    const auto results = all_reduce_bits(kRanks, options, DType::f32, kCount, 1);
    std::vector<float> sums(kCount);
    std::memcpy(sums.data(), results[0].data(), sums.size() * sizeof(float));
    for (std::int64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int rank = 0; rank < kRanks; ++rank) {
        sum += static_cast<double>(rough_value(rank, i));
        magnitude += std::abs(static_cast<double>(rough_value(rank, i)));
      }
      ASSERT_LE(std::abs(static_cast<double>(sums[static_cast<std::size_t>(i)]) - sum),
                (kRanks - 1) * 0x1p-24 * magnitude);
    }
  }
}

}  // namespace
}  // namespace belay::comm
