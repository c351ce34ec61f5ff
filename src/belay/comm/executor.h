#pragma once
// Runs one rank's program over a transport. Allocates nothing once a program is prepared.

#include <cstdint>
#include <vector>

#include "belay/comm/link_meter.h"
#include "belay/comm/reduce.h"
#include "belay/comm/schedule.h"
#include "belay/comm/transport.h"
#include "belay/comm/watch.h"

namespace belay::comm {

// A program with what the executor derives from it, and its state while it runs.
class PreparedProgram {
 public:
  explicit PreparedProgram(Program program);

 private:
  friend class Executor;
  enum class State : std::uint8_t { open, sent, held, done };

  Program program_;
  std::vector<std::int32_t> previous_;  // step of the round with the same peer and direction, or -1
  std::vector<State> states_;
  std::vector<std::uint64_t> tickets_;   // number of the message that a step has sent
  std::vector<std::uint64_t> asked_;     // when a large message was first looked for, ns
  std::vector<const void*> views_;       // of held messages
  std::vector<std::uint32_t> position_;  // current round of each lane
  // Gathers and fills before each combine, back to the previous one.
  std::vector<std::int32_t> gathers_;
  std::vector<std::int32_t> fills_;
  std::vector<const void*> parts_;  // room for one combine
  std::vector<void*> copies_;
};

// The memory of a call; see schedule.h. Pointers to unused buffers may be null.
struct CallBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  void* work = nullptr;
  void* spare = nullptr;
};

class Executor {
 public:
  // Without a recorder and a meter nothing is recorded.
  explicit Executor(Transport& transport, double timeout_s, FlightRecorder* recorder = nullptr,
                    LinkMeter* meter = nullptr)
      : transport_(transport), watch_(transport, timeout_s, recorder), meter_(meter) {}

  // Blocks until this rank's part is done: its output is complete, and its input free.
  // Error(communication) as watch.h says. Without `whole` this is a part of a call, after which the
  // call is not finished.
  void run(PreparedProgram& prepared, const Signature& signature, const CallBuffers& buffers,
           bool whole = true);
  void abort(ExitCode code, std::string_view what) { watch_.abort(code, what); }
  void set_patient(bool patient) { watch_.set_patient(patient); }
  [[nodiscard]] bool is_patient() const { return watch_.is_patient(); }

  [[nodiscard]] Watch& watch() { return watch_; }

 private:
  using State = PreparedProgram::State;
  struct Lane;

  bool advance(PreparedProgram& prepared, std::uint32_t lane);
  State attempt(PreparedProgram& prepared, std::uint32_t index, int lane);
  State receive(PreparedProgram& prepared, std::uint32_t index, int lane);
  void combine(PreparedProgram& prepared, std::uint32_t index, int lane);
  void copy(const Step& step);
  void look_at_clock(PreparedProgram& prepared, std::uint32_t index) const;
  void meter(const PreparedProgram& prepared, std::uint32_t index, const Message& message);
  bool fetch(const Step& step, int lane, int nth, Message& message);
  [[nodiscard]] void* at(Place place) const;
  [[nodiscard]] std::size_t bytes(Buffer buffer, std::int64_t count) const;

  Transport& transport_;
  Watch watch_;
  LinkMeter* meter_;
  Signature signature_;
  Arithmetic arithmetic_;
  CallBuffers buffers_;
  std::size_t narrow_size_ = 0;
  std::size_t wide_size_ = 0;
  int waiting_for_ = -1;
};

}  // namespace belay::comm
