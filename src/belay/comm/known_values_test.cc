#include "belay/comm/known_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

TEST(KnownValues, RightResultsArePassedAndWrongOnesCounted) {
  constexpr std::int64_t kCount = 101;
  expect_no_errors(run_ranks(3, {}, [&](Communicator& comm) {
    const KnownValues values(Collective::all_reduce, DType::f32, kCount, comm.rank(), 3);
    std::vector<float> input(kCount);
    std::vector<float> output(kCount);
    values.fill_input(input.data());
    values.fill_output(output.data(), false);
    EXPECT_EQ(values.wrong(output.data()), kCount);
    comm.all_reduce(input.data(), output.data(), kCount, DType::f32, ReduceOp::sum);
    EXPECT_EQ(values.wrong(output.data()), 0);
    values.fill_output(output.data(), true);
    comm.all_reduce(output.data(), output.data(), kCount, DType::f32, ReduceOp::sum);
    EXPECT_EQ(values.wrong(output.data()), 0);
    output[50] += 1;
    EXPECT_EQ(values.wrong(output.data()), 1);
    const KnownValues blocks(Collective::all_gather, DType::f32, kCount, comm.rank(), 3);
    blocks.fill_input(input.data());
    comm.all_gather(input.data(), output.data(), kCount, DType::f32);
    EXPECT_EQ(blocks.wrong(output.data()), 0);
    const KnownValues turned(Collective::all_to_all, DType::f32, 99, comm.rank(), 3);
    turned.fill_input(input.data());
    comm.all_to_all(input.data(), output.data(), 33, DType::f32);
    EXPECT_EQ(turned.wrong(output.data()), 0);
  }));
}

}  // namespace
}  // namespace belay::comm
