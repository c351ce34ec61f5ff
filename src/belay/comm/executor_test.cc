// Schedules carried out by threads: exact results, guards, identical bits, order-stable sums.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "belay/comm/element_values.h"
#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

constexpr double kGuard = 77;

// Small integers, of which every type holds every partial sum exactly. Products of +-1 and 2 stay
// small because only one rank in sixteen has a 2.
double value_of(ReduceOp op, int rank, std::int64_t i) {
  if (op == ReduceOp::prod) return (rank + i) % 16 == 0 ? 2 : (rank * 3 + i) % 2 == 0 ? 1 : -1;
  return static_cast<double>((rank * 5 + i * 3) % 4);
}

double reduced(ReduceOp op, int ranks, std::int64_t i) {
  double result = value_of(op, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = value_of(op, rank, i);
    switch (op) {
      case ReduceOp::prod:
        result *= next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      default:
        result += next;
    }
  }
  return result;
}

double final_value(ReduceOp op, DType dtype, int ranks, std::int64_t i) {
  double value = reduced(op, ranks, i);
  if (op == ReduceOp::avg) {
    value /= ranks;
    if (dtype == DType::i32) value = std::trunc(value);
    std::vector<double> rounded(1);
    set(rounded.data(), dtype, 0, value);
    value = get(rounded.data(), dtype, 0);
  }
  return value;
}

// One call of each kind with a given number of elements; misaligned by one element, with guards.
class Calls {
 public:
  Calls(Communicator& comm, DType dtype, ReduceOp op, std::int64_t count, bool in_place)
      : comm_(comm), dtype_(dtype), op_(op), count_(count), in_place_(in_place) {
    const auto elements = static_cast<std::size_t>((count + 2) * comm.size() + 2);
    input_.resize(elements);
    output_.resize(elements);
  }

  void all_reduce() {
    give(count_, [&](std::int64_t i) { return value_of(op_, comm_.rank(), i); });
    comm_.all_reduce(input(), output(), count_, dtype_, op_);
    expect(count_, [&](std::int64_t i) { return final_value(op_, dtype_, comm_.size(), i); });
  }
  void reduce_scatter() {
    const Blocks blocks = Blocks::even(0, count_, comm_.size());
    const bool in_place = std::exchange(in_place_, false);
    give(count_, [&](std::int64_t i) { return value_of(op_, comm_.rank(), i); });
    comm_.reduce_scatter(input(), output(), count_, dtype_, op_);
    const std::int64_t begin = blocks.begin(comm_.rank());
    expect_in(output(), blocks.count(comm_.rank()),
              [&](std::int64_t i) { return final_value(op_, dtype_, comm_.size(), begin + i); });
    in_place_ = in_place;
  }
  void all_gather() {
    const Blocks blocks = Blocks::even(0, count_, comm_.size());
    const std::int64_t begin = blocks.begin(comm_.rank());
    const bool in_place = std::exchange(in_place_, false);
    give(blocks.count(comm_.rank()),
         [&](std::int64_t i) { return value_of(ReduceOp::sum, 1, begin + i); });
    comm_.all_gather(input(), output(), count_, dtype_);
    expect_in(output(), count_, [&](std::int64_t i) { return value_of(ReduceOp::sum, 1, i); });
    in_place_ = in_place;
  }
  void broadcast(int root) {
    give(count_, [&](std::int64_t i) { return value_of(ReduceOp::sum, comm_.rank(), i); });
    comm_.broadcast(input(), output(), count_, dtype_, root);
    expect(count_, [&](std::int64_t i) { return value_of(ReduceOp::sum, root, i); });
  }
  void reduce(int root) {
    give(count_, [&](std::int64_t i) { return value_of(op_, comm_.rank(), i); });
    comm_.reduce(input(), comm_.rank() == root ? output() : nullptr, count_, dtype_, op_, root);
    if (comm_.rank() != root) return;
    expect(count_, [&](std::int64_t i) { return final_value(op_, dtype_, comm_.size(), i); });
  }
  void all_to_all() {
    const bool in_place = std::exchange(in_place_, false);
    const std::int64_t block = std::min<std::int64_t>(count_, 5);
    give(block * comm_.size(), [&](std::int64_t i) {
      return value_of(ReduceOp::sum,
                      comm_.rank() + static_cast<int>(i / std::max<std::int64_t>(block, 1)),
                      i % std::max<std::int64_t>(block, 1));
    });
    comm_.all_to_all(input(), output(), block, dtype_);
    expect_in(output(), block * comm_.size(), [&](std::int64_t i) {
      return value_of(ReduceOp::sum, static_cast<int>(i / block) + comm_.rank(), i % block);
    });
    in_place_ = in_place;
  }

 private:
  void* input() { return skip_one(input_.data()); }
  void* output() { return in_place_ ? input() : skip_one(output_.data()); }
  void* skip_one(double* data) { return reinterpret_cast<std::byte*>(data) + size_of(dtype_); }
  template <class Value>
  void give(std::int64_t count, Value value) {
    for (void* buffer : {input(), skip_one(output_.data())}) {
      for (std::int64_t i = -1; i < static_cast<std::int64_t>(input_.size()) - 1; ++i) {
        set(buffer, dtype_, i, kGuard);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) set(input(), dtype_, i, value(i));
  }
  template <class Value>
  void expect(std::int64_t count, Value value) {
    expect_in(output(), count, value);
    if (in_place_) return;
    // The input is as it was.
    ASSERT_EQ(get(input(), dtype_, -1), kGuard);
  }
  template <class Value>
  void expect_in(const void* data, std::int64_t count, Value value) {
    ASSERT_EQ(get(data, dtype_, -1), kGuard);
    ASSERT_EQ(get(data, dtype_, count), kGuard);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(get(data, dtype_, i), value(i)) << "element " << i << " of " << count << ", rank "
                                                << comm_.rank() << ", " << belay::name_of(dtype_);
    }
  }

  Communicator& comm_;
  DType dtype_;
  ReduceOp op_;
  std::int64_t count_;
  bool in_place_;
  std::vector<double> input_;
  std::vector<double> output_;
};

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

std::vector<std::int64_t> counts_for(int p) {
  return {0, 1, p - 1, p, p + 1, 61, 1031};
}

class ExecutorRanks : public testing::TestWithParam<int> {};

TEST_P(ExecutorRanks, EveryAllReduceIsExact) {
  const int p = GetParam();
  CommunicatorOptions options;
  for (int rank = 0; rank < p; ++rank)
    options.layout.domain_of.push_back(rank * 2 / (p + 1) + rank % 2);
  expect_no_errors(run_ranks(p, options, [p](Communicator& comm) {
    int turn = 0;
    for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
      comm.set_chooser(
          always({algorithm, 1 + p % 4, static_cast<Inner>(p % 4), static_cast<Outer>(p % 5)}));
      for (const std::int64_t count : counts_for(p)) {
        for (const DType dtype : kTypes) {
          // All operations in turn; every type sees every operation over the counts.
          const ReduceOp op = kOps[static_cast<std::size_t>(turn++) % 5];
          Calls(comm, dtype, op, count, turn % 2 == 0).all_reduce();
        }
      }
    }
  }));
}

TEST_P(ExecutorRanks, EveryOtherCollectiveIsExact) {
  const int p = GetParam();
  expect_no_errors(run_ranks(p, {}, [p](Communicator& comm) {
    int turn = 0;
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct}) {
      const bool direct = algorithm == Algorithm::direct;
      for (const std::int64_t count : counts_for(p)) {
        for (const DType dtype : kTypes) {
          const ReduceOp op = kOps[static_cast<std::size_t>(turn++) % 5];
          const int root = turn % p;
          Calls calls(comm, dtype, op, count, turn % 3 == 0);
          comm.set_chooser(always({algorithm}));
          calls.reduce_scatter();
          calls.all_gather();
          comm.set_chooser(always({direct                         ? Algorithm::direct
                                   : algorithm == Algorithm::ring ? Algorithm::chain
                                                                  : Algorithm::binomial,
                                   3}));
          calls.broadcast(root);
          calls.reduce(root);
          comm.set_chooser(always({direct ? Algorithm::direct : Algorithm::pairwise}));
          calls.all_to_all();
          comm.set_chooser(always({Algorithm::dissemination}));
          comm.barrier();
        }
      }
    }
  }));
}
INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorRanks, testing::Values(1, 2, 3, 4, 5, 8, 13));

TEST(Executor, ManyRanks) {
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    CommunicatorOptions options;
    options.chooser = always({algorithm, 2});
    for (int rank = 0; rank < 40; ++rank) options.layout.domain_of.push_back(rank / 8);
    expect_no_errors(run_ranks(40, options, [](Communicator& comm) {
      Calls(comm, DType::f32, ReduceOp::sum, 1031, true).all_reduce();
    }));
  }
}

TEST(Executor, BlocksOfAnySize) {
  const std::vector<std::int64_t> bounds{0, 0, 7, 8, 30};
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct}) {
    CommunicatorOptions options;
    options.chooser = always({algorithm});
    expect_no_errors(run_ranks(4, options, [&](Communicator& comm) {
      const auto own = static_cast<std::size_t>(comm.rank());
      std::vector<float> values(30);
      for (std::size_t i = 0; i < 30; ++i)
        values[i] = static_cast<float>(i) + static_cast<float>(own);
      // In place: the block's own place in the vector.
      float* const block = values.data() + bounds[own];
      comm.reduce_scatter(values.data(), block, bounds, DType::f32, ReduceOp::sum);
      comm.all_gather(block, values.data(), bounds, DType::f32);
      for (std::size_t i = 0; i < 30; ++i) ASSERT_EQ(values[i], static_cast<float>(4 * i + 6));
    }));
  }
}

// The oldest schedules go, and come back when they are called again.
TEST(Communicator, KeepsSoManySchedules) {
  CommunicatorOptions options;
  options.kept_schedules = 3;
  expect_no_errors(run_ranks(2, options, [](Communicator& comm) {
    for (const std::int64_t count : {10, 20, 10, 30, 40, 10, 20, 10, 50, 50, 10}) {
      std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
      comm.all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
      for (const float value : values) ASSERT_EQ(value, 2.0F);
      EXPECT_LE(comm.kept_schedules(), 3U);
    }
    EXPECT_EQ(comm.kept_schedules(), 3U);
  }));
}

}  // namespace
}  // namespace belay::comm
