#include "belay/train/timeline_recorder.h"

namespace belay {
namespace {

constexpr std::size_t kCounterCapacity = 1024;

}  // namespace

TimelineRecorder::TimelineRecorder(std::size_t capacity)
    : timeline_(capacity, kCounterCapacity),
      start_(std::chrono::steady_clock::now() - std::chrono::nanoseconds(timeline_.now())) {
  timeline_.name_lane(0, kComputeLane, "compute");
  timeline_.name_lane(0, kPhaseLane, "phases");
}

void TimelineRecorder::record(const OpCall& call, std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end) {
  const auto since = [this](std::chrono::steady_clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at - start_).count();
  };
  Span span;
  span.name = call.op;
  span.lane = kComputeLane;
  span.begin_ns = since(begin);
  span.end_ns = since(end);
  span.flops = call.cost.flops;
  span.bytes = call.cost.bytes;
  timeline_.record(span);
}

}  // namespace belay
