#include "belay/observe/timeline.h"

#include <algorithm>
#include <unordered_map>

namespace belay {

Timeline::Timeline(std::size_t span_capacity, std::size_t counter_capacity)
    : spans_(span_capacity), counters_(counter_capacity) {}

void Timeline::record(const Span& span) noexcept {
  const std::size_t index = span_count_.fetch_add(1, std::memory_order_relaxed);
  if (index < spans_.size()) spans_[index] = span;
}

void Timeline::record(const CounterSample& sample) noexcept {
  const std::size_t index = counter_count_.fetch_add(1, std::memory_order_relaxed);
  if (index < counters_.size()) counters_[index] = sample;
}

void Timeline::clear() {
  span_count_ = 0;
  counter_count_ = 0;
}

std::string_view Timeline::keep(std::string_view name) {
  const std::lock_guard lock(names_mutex_);
  for (const std::string& known : names_) {
    if (known == name) return known;
  }
  return names_.emplace_back(name);
}

void Timeline::name_lane(std::int32_t rank, std::int32_t lane, std::string_view name) {
  const std::lock_guard lock(names_mutex_);
  lane_names_[{rank, lane}] = name;
}

std::span<const Span> Timeline::spans() const {
  return std::span(spans_).first(std::min(span_count_.load(), spans_.size()));
}

std::span<const CounterSample> Timeline::counters() const {
  return std::span(counters_).first(std::min(counter_count_.load(), counters_.size()));
}

std::int64_t Timeline::dropped() const {
  const std::size_t recorded = span_count_ + counter_count_;
  return static_cast<std::int64_t>(recorded - spans().size() - counters().size());
}

std::vector<SpanTotal> totals(const Timeline& timeline) {
  std::vector<SpanTotal> result;
  std::unordered_map<std::string_view, std::size_t> index_of;
  for (const Span& span : timeline.spans()) {
    const auto [entry, fresh] = index_of.try_emplace(span.name, result.size());
    if (fresh) result.push_back({.name = span.name});
    SpanTotal& total = result[entry->second];
    ++total.count;
    total.ms += static_cast<double>(span.end_ns - span.begin_ns) * 1e-6;
    total.flops += span.flops;
    total.bytes += span.bytes;
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const SpanTotal& a, const SpanTotal& b) { return a.ms > b.ms; });
  return result;
}

}  // namespace belay
