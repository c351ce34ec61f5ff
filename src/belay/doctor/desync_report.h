#pragma once
// Who brought a group of ranks to a stand: from the calls that each has written down, the first one
// in which they differ.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/doctor/flight_records.h"

namespace belay {

// What a rank did that the others did not.
enum class Culprit : std::uint8_t {
  crashed,       // ended by a signal that means a bug
  own_error,     // ended with an error of its own
  another_call,  // called something else
  no_record,     // killed, or its host is gone
  left_early,    // ended in order while others went on
  slept,         // did not run: stopped, or waiting for something else
  late,          // was computing, and has not called what the others have
  stopped,       // stands still in the middle of the call
  link,          // two ranks wait for each other: what one sent has not reached the other
};
std::string_view name_of(Culprit kind);

struct DesyncCulprit {
  int rank = 0;
  Culprit kind = Culprit::no_record;
  std::string why;  // a sentence without the rank
};

struct DesyncRank {
  int rank = 0;
  std::string record;           // "whole", "cut" or "none"
  std::string end;              // how it ended, in words
  std::string did;              // what it did in the call in question
  std::int64_t last_call = -1;  // the last one it entered; -1: nobody knows
};

struct DesyncReport {
  int ranks = 0;
  std::vector<DesyncRank> by_rank;
  std::vector<FlightRecords::Damaged> damaged;
  bool differs = false;       // the calls do
  std::int64_t sequence = 0;  // of the first difference
  std::string call;           // of most ranks
  std::int64_t agreed = 0;    // last call that all records agree on and have finished
  std::vector<DesyncCulprit> culprits;
  std::vector<std::string> remarks;
};

DesyncReport desync_report(const FlightRecords& records);

// A table for people.
std::string report_text(const DesyncReport& report);
std::string report_json(const DesyncReport& report);

}  // namespace belay
