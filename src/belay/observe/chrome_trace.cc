#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <set>

#include "belay/base/file.h"
#include "belay/observe/timeline.h"

namespace belay {
namespace {

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

// Nanoseconds as microseconds, exactly.
void append_time(std::string& out, std::int64_t ns) {
  const char* const sign = ns < 0 ? "-" : "";
  const std::int64_t size = ns < 0 ? -ns : ns;
  fmt::format_to(std::back_inserter(out), "{}{}.{:03d}", sign, size / 1000, size % 1000);
}

// JSON knows neither NaN nor infinity.
void append_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{}", value);
  } else {
    out += "null";
  }
}

void append_metadata(std::string& out, const Timeline& timeline) {
  std::set<std::int32_t> ranks;
  for (const Span& span : timeline.spans()) ranks.insert(span.rank);
  for (const CounterSample& sample : timeline.counters()) ranks.insert(sample.rank);
  for (const auto& [place, name] : timeline.lane_names()) ranks.insert(place.first);
  for (const std::int32_t rank : ranks) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"tid\":0,\"args\":"
                   "{{\"name\":\"rank {0}\"}}}},\n",
                   rank);
  }
  for (const auto& [place, name] : timeline.lane_names()) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":"
                   "{{\"name\":",
                   place.first, place.second);
    append_text(out, name);
    out += "}},\n";
  }
}

}  // namespace

std::string to_chrome_trace(const Timeline& timeline) {
  std::string out = "{\"traceEvents\":[\n";
  append_metadata(out, timeline);
  for (const Span& span : timeline.spans()) {
    out += "{\"ph\":\"X\",\"name\":";
    append_text(out, span.name);
    fmt::format_to(std::back_inserter(out),
                   ",\"cat\":\"belay\",\"pid\":{},\"tid\":{},\"ts\":", span.rank, span.lane);
    append_time(out, span.begin_ns);
    out += ",\"dur\":";
    append_time(out, span.end_ns - span.begin_ns);
    out += ",\"args\":{\"flops\":";
    append_number(out, span.flops);
    out += ",\"bytes\":";
    append_number(out, span.bytes);
    out += "}},\n";
  }
  for (const CounterSample& sample : timeline.counters()) {
    out += "{\"ph\":\"C\",\"name\":";
    append_text(out, sample.name);
    fmt::format_to(std::back_inserter(out), ",\"pid\":{},\"tid\":0,\"ts\":", sample.rank);
    append_time(out, sample.at_ns);
    out += ",\"args\":{\"value\":";
    append_number(out, sample.value);
    out += "}},\n";
  }
  if (out.ends_with(",\n")) out.resize(out.size() - 2);
  fmt::format_to(std::back_inserter(out),
                 "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped\":{}}}}}\n",
                 timeline.dropped());
  return out;
}

void write_chrome_trace(const Timeline& timeline, const std::string& path) {
  write_file(path, to_chrome_trace(timeline));
}

}  // namespace belay
