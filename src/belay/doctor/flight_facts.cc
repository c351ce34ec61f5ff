#include "belay/doctor/flight_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

namespace belay {

std::string signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return fmt::format("signal {}", signal);
  }
}

std::string end_in_words(const FlightRecord& record) {
  if (record.end == "crashed") return "crashed with " + signal_name(record.code);
  if (record.end == "asked") return signal_name(record.code);
  if (record.end == "communication") return "the group failed";
  if (record.end == "elsewhere") return "another rank failed";
  if (record.end == "error") return fmt::format("its own error, exit code {}", record.code);
  return "unknown";
}

const FlightCall* call_at(const FlightRecord& record, std::int64_t sequence) {
  for (const FlightCall& call : record.calls) {
    if (call.sequence == sequence) return &call;
  }
  return nullptr;
}

std::int64_t last_of(const FlightRecord& record) {
  std::int64_t last = 0;
  for (const FlightCall& call : record.calls) last = std::max(last, call.sequence);
  return last;
}

std::optional<FlightPeer> seen_by_others(const FlightRecords& all, int rank) {
  std::optional<FlightPeer> latest;
  for (const FlightRecord& record : all.records) {
    for (const FlightPeer& peer : record.peers) {
      if (peer.rank != rank) continue;
      const bool newer = !latest || peer.entered > latest->entered ||
                         (peer.entered == latest->entered && peer.finished >= latest->finished);
      if (newer && (!latest || latest->state == "running" || peer.state != "running"))
        latest = peer;
    }
  }
  return latest;
}

}  // namespace belay
