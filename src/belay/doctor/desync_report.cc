#include "belay/doctor/desync_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "belay/doctor/flight_facts.h"

namespace belay {
namespace {

constexpr double kLongSeconds = 1;

class Judge {
 public:
  Judge(const FlightRecords& all, DesyncReport& report) : all_(all), report_(report) {}

  void find_difference();
  void judge();
  void describe_ranks();

 private:
  [[nodiscard]] bool differs_at(std::int64_t sequence);
  void blame(int rank, Culprit kind, std::string why) {
    report_.culprits.push_back({rank, kind, std::move(why)});
  }
  bool blame_own_ends();
  bool blame_other_calls();
  bool blame_without_record();
  bool blame_absent();
  bool blame_latecomers();
  bool blame_still();
  void blame_links();
  void remark_arrivals();
  [[nodiscard]] const FlightCall* here(const FlightRecord& record) const {
    return call_at(record, report_.sequence);
  }

  const FlightRecords& all_;
  DesyncReport& report_;
};

bool Judge::differs_at(std::int64_t sequence) {
  const FlightCall* first = nullptr;
  bool differs = false;
  for (const FlightRecord& record : all_.records) {
    const FlightCall* const call = call_at(record, sequence);
    if (call == nullptr) {
      // What a cut file does not show may have been done.
      differs |= last_of(record) < sequence && (!record.cut || record.last_call < sequence);
      continue;
    }
    if (first == nullptr) first = call;
    differs |= first->call != call->call || first->algorithm != call->algorithm ||
               call->state != FlightCall::State::done;
  }
  for (const int rank : all_.missing) {
    const auto seen = seen_by_others(all_, rank);
    differs |= seen && seen->finished < sequence;
  }
  return differs;
}

void Judge::find_difference() {
  // What some have forgotten already cannot be compared.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  for (const FlightRecord& record : all_.records) {
    if (record.calls.empty()) continue;
    begin = std::max(begin, record.calls.front().sequence);
    end = std::max(end, last_of(record));
  }
  // A rank whose last call is older than all that another remembers differs in the next one.
  for (const FlightRecord& record : all_.records) {
    const std::int64_t last = last_of(record);
    if (last > 0) begin = std::min(begin, last + 1);
  }
  for (std::int64_t sequence = std::max<std::int64_t>(begin, 1); sequence <= end; ++sequence) {
    if (differs_at(sequence)) {
      report_.differs = true;
      report_.sequence = sequence;
      report_.agreed = sequence - 1;
      return;
    }
    report_.agreed = sequence;
  }
}

// An error of its own makes a rank the first to go, wherever the others were.
bool Judge::blame_own_ends() {
  for (const FlightRecord& record : all_.records) {
    if (record.end == "crashed") {
      blame(record.rank, Culprit::crashed, "crashed with " + signal_name(record.code));
    } else if (record.end == "error") {
      blame(record.rank, Culprit::own_error,
            fmt::format("ended with an error of its own (exit code {}): {}", record.code,
                        record.text));
    }
  }
  return !report_.culprits.empty();
}

bool Judge::blame_other_calls() {
  std::map<std::string, std::vector<int>> by_call;
  for (const bool with_algorithm : {false, true}) {
    by_call.clear();
    for (const FlightRecord& record : all_.records) {
      const FlightCall* const call = here(record);
      if (call == nullptr || (with_algorithm && call->algorithm.empty())) continue;
      by_call[with_algorithm ? call->call + " by " + call->algorithm : call->call].push_back(
          record.rank);
    }
    if (by_call.size() > 1) break;
  }
  std::size_t most = 0;
  for (const auto& [call, ranks] : by_call) most = std::max(most, ranks.size());
  std::size_t winners = 0;
  for (const auto& [call, ranks] : by_call) {
    if (ranks.size() != most) continue;
    ++winners;
    if (report_.call.empty()) report_.call = call;
  }
  if (by_call.size() < 2) return false;
  for (const auto& [call, ranks] : by_call) {
    if (winners == 1 && ranks.size() == most) continue;
    for (const int rank : ranks) blame(rank, Culprit::another_call, "called " + call);
  }
  if (winners > 1) {
    report_.remarks.push_back("as many ranks made the one call as the other: both are listed");
  }
  return true;
}

bool Judge::blame_without_record() {
  for (const int rank : all_.missing) {
    const auto seen = seen_by_others(all_, rank);
    if (!seen) {
      blame(rank, Culprit::no_record, "has no record: killed, or its host is gone");
      continue;
    }
    if (report_.differs && seen->finished >= report_.sequence) continue;
    if (seen->state == "left") {
      blame(rank, Culprit::left_early,
            fmt::format("ended in order after call #{}, while others went on", seen->finished));
      continue;
    }
    blame(rank, Culprit::no_record,
          fmt::format("has no record: killed, or its host is gone; others saw it {} call #{} last",
                      seen->finished < seen->entered ? "in" : "finish", seen->entered));
  }
  return !report_.culprits.empty();
}

bool Judge::blame_absent() {
  for (const FlightRecord& record : all_.records) {
    // Written down, but not entered yet: nobody has seen it.
    const FlightCall* const call = here(record);
    const bool queued = call != nullptr && call->state == FlightCall::State::queued;
    if (!queued && (call != nullptr || record.last_call >= report_.sequence)) continue;
    const bool asleep =
        seconds(record.watched_us) > kLongSeconds && record.cpu_us * 10 < record.watched_us;
    if (asleep) {
      blame(
          record.rank, Culprit::slept,
          fmt::format("has not called it, and did not run: {:.1f} s of processor time in the last "
                      "{:.1f} s (stopped, or waiting for a disk)",
                      seconds(record.cpu_us), seconds(record.watched_us)));
    } else {
      blame(record.rank, Culprit::late,
            fmt::format("has not called it; it was busy after call #{}", record.finished_call));
    }
  }
  return !report_.culprits.empty();
}

// Who came when the others had nearly given up.
bool Judge::blame_latecomers() {
  std::int64_t first = 0;  // of those that waited in vain
  std::int64_t given_up = 0;
  for (const FlightRecord& record : all_.records) {
    const FlightCall* const call = here(record);
    if (call == nullptr || call->state != FlightCall::State::started) continue;
    if (first == 0 || call->started_us < first) {
      first = call->started_us;
      given_up = record.written_us;
    }
  }
  for (const FlightRecord& record : all_.records) {
    const FlightCall* const call = here(record);
    if (call == nullptr || first == 0) continue;
    const std::int64_t late = call->started_us - first;
    if (seconds(late) < kLongSeconds / 2 || 2 * late < given_up - first) continue;
    const bool on_the_way = 2 * (call->started_us - call->queued_us) > late;
    blame(record.rank, on_the_way ? Culprit::slept : Culprit::late,
          on_the_way
              ? fmt::format("entered it {:.1f} s after the others, and did not run meanwhile",
                            seconds(late))
              : fmt::format("came to it {:.1f} s after the others", seconds(late)));
  }
  return !report_.culprits.empty();
}

bool Judge::blame_still() {
  for (const FlightRecord& record : all_.records) {
    const FlightCall* const call = here(record);
    if (call == nullptr || call->state != FlightCall::State::started) continue;
    const double waited = seconds(record.written_us - call->started_us);
    const double still = seconds(call->still_us);
    if (still > kLongSeconds / 2 && 2 * still > waited) {
      blame(record.rank, Culprit::stopped,
            fmt::format("stood still for {:.1f} s in the middle of it", still));
    }
  }
  return !report_.culprits.empty();
}

void Judge::blame_links() {
  const auto waits_for = [&](int rank) {
    const FlightRecord* const record = all_.of(rank);
    const FlightCall* const call = record == nullptr ? nullptr : here(*record);
    const bool waits = call != nullptr && call->state == FlightCall::State::started;
    return waits && !call->waited_for.empty() ? call->waited_for.front() : -1;
  };
  for (const FlightRecord& record : all_.records) {
    const int peer = waits_for(record.rank);
    if (peer > record.rank && waits_for(peer) == record.rank) {
      blame(record.rank, Culprit::link,
            fmt::format("and rank {} wait for each other: what one sent has not reached the other",
                        peer));
    }
  }
}

// Of those that came: who came long after the others.
void Judge::remark_arrivals() {
  std::vector<std::int64_t> arrivals;
  for (const FlightRecord& record : all_.records) {
    if (const FlightCall* const call = here(record)) arrivals.push_back(call->queued_us);
  }
  if (arrivals.size() < 2) return;
  std::sort(arrivals.begin(), arrivals.end());
  const std::int64_t median = arrivals[(arrivals.size() - 1) / 2];
  for (const FlightRecord& record : all_.records) {
    const FlightCall* const call = here(record);
    if (call == nullptr || seconds(call->queued_us - median) < kLongSeconds) continue;
    report_.remarks.push_back(fmt::format("rank {} came to call #{} {:.1f} s after the others",
                                          record.rank, report_.sequence,
                                          seconds(call->queued_us - median)));
  }
}

void Judge::judge() {
  const bool own = blame_own_ends();
  if (!report_.differs) {
    if (!own) blame_without_record();
    return;
  }
  const std::vector<DesyncCulprit> owners = report_.culprits;
  if (own) report_.culprits.clear();
  const bool another = blame_other_calls();  // finds the call's name too
  if (own) {
    report_.culprits = owners;
  } else if (!another && !blame_without_record() && !blame_absent() && !blame_latecomers() &&
             !blame_still()) {
    blame_links();
  }
  remark_arrivals();
  for (const FlightRecord& record : all_.records) {
    if (record.end != "communication") continue;
    report_.remarks.push_back("the ranks said: " + record.text);
    break;
  }
}

void Judge::describe_ranks() {
  for (int rank = 0; rank < all_.ranks; ++rank) {
    DesyncRank line;
    line.rank = rank;
    const FlightRecord* const record = all_.of(rank);
    if (record == nullptr) {
      line.record = "none";
      if (const auto seen = seen_by_others(all_, rank)) {
        line.last_call = seen->entered;
        line.end = seen->state == "left" ? "in order" : "unknown";
        line.did = fmt::format("seen to {} #{}",
                               seen->finished < seen->entered ? "enter" : "finish", seen->entered);
      }
      report_.by_rank.push_back(std::move(line));
      continue;
    }
    line.record = record->cut ? "cut" : "whole";
    line.end = end_in_words(*record);
    line.last_call = record->last_call;
    if (const FlightCall* const call = report_.differs ? here(*record) : nullptr) {
      const bool queued = call->state == FlightCall::State::queued;
      line.did = call->state == FlightCall::State::done ? "finished it"
                 : queued                               ? "was about to enter it"
                                                        : "was in it";
      if (!report_.call.starts_with(call->call)) line.did = "called " + call->call;
      if (call->state != FlightCall::State::done && !call->waited_for.empty()) {
        line.did += fmt::format(", waiting for rank {}", call->waited_for.front());
      }
    } else if (report_.differs) {
      line.did =
          record->last_call < report_.sequence ? "has not called it" : "the file does not say";
    }
    report_.by_rank.push_back(std::move(line));
  }
}

}  // namespace

std::string_view name_of(Culprit kind) {
  switch (kind) {
    case Culprit::crashed:
      return "crashed";
    case Culprit::own_error:
      return "own_error";
    case Culprit::another_call:
      return "another_call";
    case Culprit::no_record:
      return "no_record";
    case Culprit::left_early:
      return "left_early";
    case Culprit::slept:
      return "slept";
    case Culprit::late:
      return "late";
    case Culprit::stopped:
      return "stopped";
    case Culprit::link:
      break;
  }
  return "link";
}

DesyncReport desync_report(const FlightRecords& records) {
  DesyncReport report;
  report.ranks = records.ranks;
  report.damaged = records.damaged;
  Judge judge(records, report);
  judge.find_difference();
  judge.judge();
  judge.describe_ranks();
  return report;
}

}  // namespace belay
