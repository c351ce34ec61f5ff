#pragma once
// Timeline: what ran where, from when to when. The trainer writes measured ones; other writers may
// write predicted ones of the same type. Room is reserved at construction: recording allocates
// nothing, may happen from several threads at once, and drops (and counts) what no longer fits.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

struct Span {
  std::string_view name;  // must outlive the Timeline: a literal, or Timeline::keep()
  std::int32_t rank = 0;
  std::int32_t lane = 0;
  std::int64_t begin_ns = 0;  // since the Timeline's start
  std::int64_t end_ns = 0;
  double flops = 0;
  double bytes = 0;
};

// A quantity over time, such as tokens waiting in the loader.
struct CounterSample {
  std::string_view name;
  std::int32_t rank = 0;
  std::int64_t at_ns = 0;
  double value = 0;
};

class Timeline {
 public:
  Timeline(std::size_t span_capacity, std::size_t counter_capacity);

  // Nanoseconds since the Timeline was made.
  [[nodiscard]] std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start_)
        .count();
  }
  void record(const Span& span) noexcept;
  void record(const CounterSample& sample) noexcept;
  // Forgets what was recorded, keeps the room and the names.
  void clear();

  // A copy of the name that lives as long as the Timeline. Allocates for a new name.
  std::string_view keep(std::string_view name);
  void name_lane(std::int32_t rank, std::int32_t lane, std::string_view name);

  [[nodiscard]] std::span<const Span> spans() const;
  [[nodiscard]] std::span<const CounterSample> counters() const;
  [[nodiscard]] const auto& lane_names() const { return lane_names_; }
  [[nodiscard]] std::int64_t dropped() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Span> spans_;
  std::vector<CounterSample> counters_;
  std::atomic<std::size_t> span_count_ = 0;  // may run past the room: the excess was dropped
  std::atomic<std::size_t> counter_count_ = 0;
  std::mutex names_mutex_;
  std::deque<std::string> names_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::string> lane_names_;
};

// Records the scope it lives in; with a null timeline it costs nothing.
class SpanScope {
 public:
  SpanScope(Timeline* timeline, std::int32_t lane, std::string_view name, double flops = 0,
            double bytes = 0)
      : timeline_(timeline) {
    if (timeline_ == nullptr) return;
    span_ = {
        .name = name, .lane = lane, .begin_ns = timeline_->now(), .flops = flops, .bytes = bytes};
  }
  ~SpanScope() {
    if (timeline_ == nullptr) return;
    span_.end_ns = timeline_->now();
    timeline_->record(span_);
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  Timeline* timeline_;
  Span span_;
};

// All spans of one name together, longest first.
struct SpanTotal {
  std::string_view name;
  std::int64_t count = 0;
  double ms = 0;
  double flops = 0;
  double bytes = 0;
};
std::vector<SpanTotal> totals(const Timeline& timeline);

// The Trace Event Format that Perfetto and chrome://tracing open: process = rank, thread = lane,
// times in microseconds.
std::string to_chrome_trace(const Timeline& timeline);
// Writes it under a temporary name and renames. Throws Error(data) or Error(capacity).
void write_chrome_trace(const Timeline& timeline, const std::string& path);

}  // namespace belay
