#pragma once
// The last calls of a rank, always written down in memory and never to a file, until the rank ends
// as it should not: then they are evidence. `belay doctor desync` reads them.
//
// Recording takes three time stamps and a few stores per call; nothing is allocated, and the system
// is asked for the processor time used ten times a second at most. Writing is safe in a signal
// handler.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "belay/base/error.h"
#include "belay/comm/transport.h"

namespace belay::comm {

struct FlightEntry {
  enum class State : std::uint32_t { none, queued, started, done };

  Signature call;
  std::atomic<State> state{State::none};
  std::atomic<std::uint64_t> queued{0};   // ticks
  std::atomic<std::uint64_t> started{0};  // other ranks can see it
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> still{0};  // the longest time that the rank did not run while waiting
  // The peers waited for longer than a few microseconds, the latest first; -1: none.
  std::array<std::atomic<std::int32_t>, 4> waited{-1, -1, -1, -1};
};

class FlightRecorder {
 public:
  static constexpr std::size_t kEntries = 256;

  // How a rank has ended.
  enum class End : std::uint32_t {
    unknown,
    communication,  // the group failed; the text says why
    error,          // the rank's own error
    elsewhere,      // the error of another rank
    asked,          // a signal asked it to stop
    crashed,        // a signal that means a bug
  };

  // The transport must outlive the recorder.
  explicit FlightRecorder(const Transport& transport);
  // Removes the record if the end was in order after all.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // --- By the thread that makes the calls.
  void queued(const Signature& call);
  void started(const Signature& call);
  void done(std::uint64_t sequence);
  // Ticks that the rank has spent outside of calls that others can see, so far.
  [[nodiscard]] std::uint64_t outside_ticks() const { return outside_; }
  // In the call begun last.
  void waits_for(int peer);
  // The rank was about to look around again and came back only after so many ticks.
  void stood_still(std::uint64_t ticks);

  // From now on the record is written to DIRECTORY/rank-N.json, when it is; the directory is made
  // then, those that it lies in at once. Error(usage) if the name is too long.
  void keep_in(const std::string& directory);
  [[nodiscard]] bool is_kept() const { return path_[0] != '\0'; }
  [[nodiscard]] const char* path() const { return path_.data(); }
  // What the record will say of the end: the first word stays, but for signals, which may be
  // survived.
  void note(End end, int code, std::string_view text);
  // False if it could not, has no directory, or is being written already.
  bool write();
  // Async-signal-safe: notes the signal and writes. False if a record is just being written by
  // whom the signal has interrupted.
  bool write_at_signal(int signal, bool crash);

 private:
  bool write_file();
  [[nodiscard]] FlightEntry& entry(std::uint64_t sequence) { return entries_[sequence % kEntries]; }

  const Transport& transport_;
  std::array<FlightEntry, kEntries> entries_;
  std::atomic<std::uint64_t> last_{0};      // sequence number
  std::atomic<std::uint64_t> finished_{0};  // likewise
  std::uint64_t outside_ = 0;
  std::uint64_t last_done_ = 0;  // ticks
  std::uint64_t first_ticks_;
  std::uint64_t first_ns_;
  // Processor time used by this process when last looked, and when that was.
  std::atomic<std::uint64_t> cpu_ticks_{0};
  std::atomic<std::uint64_t> cpu_ns_{0};

  std::array<char, 1024> directory_{};
  std::array<char, 1088> path_{};
  std::array<char, 1088> unfinished_{};
  std::array<char, 256> host_{};
  std::atomic<End> end_{End::unknown};
  std::atomic<int> code_{0};
  std::array<char, 1024> text_{};
  std::atomic_flag writing_ = ATOMIC_FLAG_INIT;
  std::atomic<bool> written_{false};
  std::atomic<bool> failed_ = false;
};

// Runs `body`; what it throws is noted before it goes on its way.
template <class Body>
auto noting_failure(FlightRecorder& recorder, Body&& body) {
  try {
    return body();
  } catch (...) {
    const Error error = current_error();
    const bool said_elsewhere = std::string_view(error.what()).empty();
    recorder.note(said_elsewhere ? FlightRecorder::End::elsewhere : FlightRecorder::End::error,
                  static_cast<int>(error.code()), error.what());
    throw;
  }
}

}  // namespace belay::comm
