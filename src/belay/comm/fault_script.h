#pragma once
// Faults to inject into communication, as text: what goes wrong, on which link or rank, and when.
//
//   link 0-1 bandwidth=1e8; link 2->3 delay=5ms; rank 1 stop@call=40; rank 2 kill@call=20;
//   link 0->1 drop@call=30; all bandwidth=2e9; link 3-4 bandwidth=1e8 from=100 to=400
//
// Clauses are separated by ';'. Each has a target, one fault or more, and perhaps a span.
//
//   link A->B, link A-B   messages from rank A to rank B; in both directions, each by itself
//   rank R                all links from and to rank R, or the rank itself
//   all                   all links
//
//   bandwidth=N           bytes per second that a link carries; 1e8, or 100M (k, M, G)
//
//   delay=T               by which every message of a link is late
//
//   drop                  messages of a link are lost
//
//   late=T                by which a rank enters every call later
//
//   kill, stop            the rank kills or stops itself (SIGKILL, SIGSTOP)
//
//   from=W to=W           when it begins and ends (both included); without: always
//
//   FAULT@call=N          the same as from=N, for one fault; also FAULT@time=T
//
// T is a time with its unit: 50us, 5ms, 2s. W is the number of a call of the communicator, or a
// time since the start. Where clauses say different things of the same link, the last one holds, in
// its span.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace belay::comm {

// Both in calls and in seconds since the start.
struct FaultSpan {
  std::uint64_t first_call = 0;
  std::uint64_t last_call = std::numeric_limits<std::uint64_t>::max();
  double first_s = 0;
  double last_s = std::numeric_limits<double>::infinity();

  [[nodiscard]] bool contains(std::uint64_t call, double seconds) const {
    return call >= first_call && call <= last_call && seconds >= first_s && seconds <= last_s;
  }
};

enum class FaultKind : std::uint8_t { bandwidth, delay, drop, late, kill, stop };

struct Fault {
  static constexpr int kAny = -1;
  FaultKind kind = FaultKind::delay;
  double amount = 0;  // bytes per second, or seconds
  int from = kAny;    // ranks of the link; of a fault of a rank itself: the rank, twice
  int to = kAny;
  FaultSpan span;
};

// What a message meets on its link.
struct LinkState {
  double bandwidth = std::numeric_limits<double>::infinity();
  double delay_s = 0;
  bool drop = false;
};

class FaultScript {
 public:
  FaultScript() = default;
  // Error(usage), with the offending part and what can be said, if the text is not understood or
  // names a rank that is not below `ranks`.
  FaultScript(std::string_view text, int ranks);

  [[nodiscard]] bool empty() const { return faults_.empty(); }
  [[nodiscard]] const std::vector<Fault>& faults() const { return faults_; }
  [[nodiscard]] LinkState link(int from, int to, std::uint64_t call, double seconds) const;
  // By how much the rank is late for the call, in seconds.
  [[nodiscard]] double late(int rank, std::uint64_t call, double seconds) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace belay::comm
