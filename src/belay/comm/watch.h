#pragma once
// Waiting for other ranks, and finding out why they do not come. Every wait ends: with what was
// waited for, or with Error(communication) on all ranks, which names the rank at fault, the
// collective and its number.

#include <chrono>
#include <cstdint>
#include <string>

#include "belay/comm/flight_recorder.h"
#include "belay/comm/transport.h"

namespace belay::comm {

class Watch {
 public:
  // Without a recorder nothing is recorded.
  Watch(Transport& transport, double timeout_s, FlightRecorder* recorder = nullptr);

  // A call begins. Throws if the group has failed before.
  void begin(const Signature& call);
  // Something moved.
  void progress() { idle_ = 0; }
  // Nothing did: gives the processor away, a little or for longer. `peer`: whom the rank waits for.
  void idle(int peer);
  // A message of another call.
  [[noreturn]] void mismatch(int peer, const Signature& theirs);
  // Raises the reason on all ranks and throws it here.
  [[noreturn]] void give_up(const std::string& reason);
  // The same for an error that is not of a call; does not throw.
  void abort(ExitCode code, std::string_view what);

  // Whether waits leave the processor to others from the start, because something computes beside
  // them, at the cost of some latency.
  void set_patient(bool patient) { patient_ = patient; }
  [[nodiscard]] bool is_patient() const { return patient_; }

  [[nodiscard]] double timeout_s() const { return timeout_s_; }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool sleep_until_due();
  [[nodiscard]] bool sleep_patiently();
  void look_around();
  [[nodiscard]] std::string who_is_late(int peer);
  [[noreturn]] void rethrow();

  Transport& transport_;
  double timeout_s_;
  FlightRecorder* recorder_;
  bool crowded_;  // more ranks than processors
  bool patient_ = false;
  Signature call_;
  std::uint64_t idle_ = 0;
  Clock::time_point idle_since_;
  Clock::time_point next_look_;
  std::uint64_t looked_ = 0;  // ticks
};

}  // namespace belay::comm
