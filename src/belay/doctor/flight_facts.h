#pragma once
// Questions to flight records.

#include <cstdint>
#include <optional>
#include <string>

#include "belay/doctor/flight_records.h"

namespace belay {

inline double seconds(std::int64_t us) {
  return static_cast<double>(us) / 1e6;
}

// "SIGTERM", or "signal 40".
std::string signal_name(int signal);
std::string end_in_words(const FlightRecord& record);

// Null where the record does not have the call.
const FlightCall* call_at(const FlightRecord& record, std::int64_t sequence);
// Number of the last call that the record has; 0: none.
std::int64_t last_of(const FlightRecord& record);
// What others saw of a rank, at the latest.
std::optional<FlightPeer> seen_by_others(const FlightRecords& all, int rank);

}  // namespace belay
