#pragma once
// The flight records of a run (comm/flight_recorder.h), as far as they can be read: a rank that was
// killed has left none, and a full disk may have cut one off.

#include <cstdint>
#include <string>
#include <vector>

namespace belay {

struct FlightCall {
  enum class State : std::uint8_t { queued, started, done };
  std::int64_t sequence = 0;
  std::int64_t epoch = 0;
  std::string call;       // what all ranks must agree on, in words
  std::string algorithm;  // that too; empty: not chosen yet
  State state = State::queued;
  std::int64_t queued_us = 0;  // since 1970; 0: not yet
  std::int64_t started_us = 0;
  std::int64_t done_us = 0;
  std::vector<int> waited_for;  // the latest first
  std::int64_t still_us = 0;    // the longest time it did not run meanwhile
};

// What a rank saw of another.
struct FlightPeer {
  int rank = 0;
  std::string state;
  std::int64_t entered = 0;
  std::int64_t finished = 0;
};

struct FlightRecord {
  int rank = 0;
  int ranks = 0;
  std::string host;
  std::int64_t written_us = 0;
  std::string end;  // as FlightRecorder::End
  int code = 0;     // exit code, or signal
  std::string text;
  std::int64_t last_call = 0;
  std::int64_t finished_call = 0;
  std::int64_t watched_us = 0;  // of the last stretch of time, cpu_us of which it computed
  std::int64_t cpu_us = 0;
  std::vector<FlightPeer> peers;
  std::vector<FlightCall> calls;  // by sequence
  bool cut = false;               // the end of the file is missing
};

struct FlightRecords {
  struct Damaged {
    std::string file;
    std::string why;
  };
  int ranks = 0;
  std::vector<FlightRecord> records;  // by rank
  std::vector<Damaged> damaged;
  std::vector<int> missing;  // ranks without a record that can be read

  [[nodiscard]] const FlightRecord* of(int rank) const;
};

// `directory`: that of the records, or of their run. Error(data) if there is none to be read.
FlightRecords read_flight_records(const std::string& directory);

}  // namespace belay
