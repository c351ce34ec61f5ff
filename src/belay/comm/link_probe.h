#pragma once
// Times single links: one rank sends, the other answers. Collective calls, in which as many pairs
// may take part at once as do not share a sender or a receiver.
//
// A message carries the time at which it was sent, so the receiver knows how long it took, in one
// direction: where the two have the same clock, which ranks of one host have. Between hosts only
// the way there and back can be told.

#include <cstddef>
#include <cstdint>
#include <span>

#include "belay/comm/communicator.h"

namespace belay::comm {

struct ProbeTimes {
  double one_way_s = 0;     // least time of a message to this rank; 0: none came
  double there_back_s = 0;  // least time of a message from this rank and the answer
};

class LinkProbe {
 public:
  // Memory for messages of up to so many bytes; collective. The communicator must outlive it.
  LinkProbe(Communicator& communicator, std::size_t most_bytes);
  ~LinkProbe();
  LinkProbe(const LinkProbe&) = delete;
  LinkProbe& operator=(const LinkProbe&) = delete;

  // Rank r sends `repetitions` messages of `bytes` (at least 8) to rank to[r], one after the other,
  // or none where that is -1. Collective, with the same arguments on all ranks.
  // Error(communication) as of every call.
  ProbeTimes run(std::span<const int> to, std::size_t bytes, int repetitions);

 private:
  Communicator& communicator_;
  std::size_t most_bytes_;
  std::byte* out_;
  std::byte* in_;
};

}  // namespace belay::comm
