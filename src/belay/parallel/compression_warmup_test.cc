// Steps that send gradients as they are, before or between steps that compress them.

#include <gtest/gtest.h>

#include <numeric>

#include "belay/comm/thread_ranks.h"
#include "belay/parallel/compressed_reducer.h"

namespace belay {
namespace {

constexpr std::int64_t kElements = 40 * 50;

// Sums of a step's gradients, all of which are `first`, `first` + `stride`, ...
std::vector<float> sums(CompressedReducer& reducer, float* bucket, float first, float stride) {
  for (std::int64_t i = 0; i < kElements; ++i) bucket[i] = first + static_cast<float>(i) * stride;
  const BucketPiece piece{0, 0, kElements, 0, true};
  reducer.begin_step(1);
  reducer.reduce({bucket, static_cast<std::size_t>(kElements)}, {&piece, 1});
  reducer.end_step(true);
  return {bucket, bucket + kElements};
}

TEST(CompressionWarmUp, SendsAllAndWhatIsStillOwed) {
  ParameterTable table;
  Parameter parameter;
  parameter.name = "matrix";
  parameter.shape = {40, 50};
  table.add(parameter);
  for (const auto mode : {comm::Compression::topk, comm::Compression::int8}) {
    for (const auto level : {comm::CompressionLevel::all, comm::CompressionLevel::slow}) {
      SCOPED_TRACE(name_of(mode));
      SCOPED_TRACE(name_of(level));
      comm::CommunicatorOptions how;
      how.layout.domain_of = {0, 0, 1};
      comm::expect_no_errors(comm::run_ranks(3, how, [&](comm::Communicator& communicator) {
        CompressedReducer reducer(communicator, table, kElements, {mode, level, 0.1}, {true});
        auto* const bucket = static_cast<float*>(communicator.allocate(kElements * sizeof(float)));
        reducer.send_all(true);
        const std::vector<float> plain = sums(reducer, bucket, 1, 0.25F);
        EXPECT_EQ(reducer.traffic().sent_bytes, reducer.traffic().dense_bytes);
        reducer.send_all(false);
        const std::vector<float> part = sums(reducer, bucket, 1, 0.25F);
        reducer.send_all(true);
        const std::vector<float> rest = sums(reducer, bucket, 0, 0);
        std::vector<float> owed(kElements);
        reducer.residuals().read(0, 1, owed);
        double difference = 0;
        for (std::size_t i = 0; i < owed.size(); ++i) {
          EXPECT_EQ(plain[i], 3 * (1 + static_cast<float>(i) * 0.25F));
          difference += std::abs(static_cast<double>(part[i] - plain[i]));
          ASSERT_NEAR(part[i] + rest[i], plain[i], 1e-3);
          EXPECT_EQ(owed[i], 0);
        }
        EXPECT_GT(difference, 1);  // the step between was compressed
        communicator.deallocate(bucket);
      }));
    }
  }
}

}  // namespace
}  // namespace belay
