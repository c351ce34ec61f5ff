#include "belay/comm/progress_thread.h"

#include <gtest/gtest.h>

#include <vector>

#include "belay/comm/thread_ranks.h"

namespace belay::comm {
namespace {

TEST(ProgressThread, CallsRunInTheOrderOfTheirStart) {
  for (const int capacity : {1, 4, 64}) {
    expect_no_errors(run_ranks(3, {}, [capacity](Communicator& comm) {
      const int rank = comm.rank();
      ProgressThread progress(comm, capacity);
      std::vector<std::vector<float>> buckets;
      std::vector<ProgressThread::Ticket> tickets;
      for (int i = 0; i < 20; ++i) {
        buckets.emplace_back(static_cast<std::size_t>(10 + i * 7), static_cast<float>(rank + i));
      }
      for (std::vector<float>& bucket : buckets) {
        tickets.push_back(progress.start_all_reduce(bucket.data(), bucket.data(),
                                                    static_cast<std::int64_t>(bucket.size()),
                                                    DType::f32, ReduceOp::sum));
      }
      for (std::size_t i = tickets.size(); i-- > 0;) {
        progress.wait(tickets[i]);
        for (const float value : buckets[i]) {
          ASSERT_EQ(value, static_cast<float>(3 + 3 * static_cast<int>(i)));
        }
      }
      EXPECT_GT(progress.times().busy_s, 0);
    }));
  }
}

TEST(ProgressThread, ShardedStepOfAllKinds) {
  const std::vector<std::int64_t> bounds{0, 5, 5, 12, 20};
  expect_no_errors(run_ranks(4, {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    ProgressThread progress(comm);
    std::vector<float> values(20, static_cast<float>(rank));
    float* const block = values.data() + bounds[rank];
    values.assign(20, 2.0F);
    progress.start_reduce_scatter(values.data(), block, bounds, DType::f32, ReduceOp::avg);
    progress.wait(progress.start_all_gather(block, values.data(), bounds, DType::f32));
    for (const float value : values) ASSERT_EQ(value, 2.0F);
    float sum = 1;
    const std::function<void(Communicator&)> body = [&](Communicator& inside) {
      inside.all_reduce(&sum, &sum, 1, DType::f32, ReduceOp::sum);
    };
    progress.wait(progress.start(body));
    EXPECT_EQ(sum, 4);
    // With nothing under way, whoever waited may call.
    comm.all_reduce(&sum, &sum, 1, DType::f32, ReduceOp::sum);
    EXPECT_EQ(sum, 16);
  }));
}

TEST(ProgressThread, OnlyCallsOfTheThreadArePatient) {
  ThreadGroup group(1);
  Communicator comm(group.transport(0), {});
  ProgressThread progress(comm);
  bool patient = false;
  const std::function<void(Communicator&)> look = [&](Communicator& inside) {
    patient = inside.is_patient();
  };
  progress.wait(progress.start(look));
  EXPECT_TRUE(patient);
  EXPECT_FALSE(comm.is_patient());
  const std::function<void(Communicator&)> break_off = [](Communicator&) {
    fail(ExitCode::communication, "no more");
  };
  EXPECT_THROW(progress.wait(progress.start(break_off)), Error);
  EXPECT_FALSE(comm.is_patient());
}

TEST(ProgressThread, ErrorsReachThoseWhoWait) {
  const auto errors = run_ranks(2, {}, [](Communicator& comm) {
    ProgressThread progress(comm);
    std::vector<float> values(10);
    const std::int64_t count = comm.rank() == 0 ? 9 : 10;
    const auto ticket =
        progress.start_all_reduce(values.data(), values.data(), count, DType::f32, ReduceOp::sum);
    EXPECT_THROW(progress.wait(ticket), Error);
    EXPECT_THROW(progress.wait(ticket), Error);
    progress.start_all_reduce(values.data(), values.data(), 10, DType::f32, ReduceOp::sum);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("disagree"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace belay::comm
