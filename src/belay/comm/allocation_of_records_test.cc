#include <gtest/gtest.h>

#include "belay/base/allocation_count.h"
#include "belay/comm/flight_recorder.h"
#include "belay/comm/thread_transport.h"

namespace belay::comm {
namespace {

TEST(FlightRecorder, RecordingAllocatesNothing) {
  ThreadGroup group(1);
  FlightRecorder recorder(group.transport(0));
  const std::int64_t before = allocation_count();
  for (std::uint64_t sequence = 1; sequence < 1000; ++sequence) {
    Signature call;
    call.sequence = sequence;
    recorder.queued(call);
    recorder.started(call);
    recorder.waits_for(1);
    recorder.stood_still(5);
    recorder.done(sequence);
  }
  EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace belay::comm
