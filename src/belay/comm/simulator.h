#pragma once
// Virtual time for schedules: the steps that the executor carries out, over a model of the machine.
// Rounds are generated as they are reached, so thousands of ranks fit.

#include <cstdint>
#include <vector>

#include "belay/comm/schedule.h"

namespace belay::comm {

// Seconds as a function of bytes: straight lines between points, and beyond the last two.
class Curve {
 public:
  Curve() = default;
  // alpha + beta * bytes.
  static Curve line(double alpha_s, double beta_s_per_byte);
  // Points with growing bytes; at least two.
  static Curve through(std::vector<double> bytes, std::vector<double> seconds);

  [[nodiscard]] double operator()(double bytes) const;
  [[nodiscard]] const std::vector<double>& bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  std::vector<double> bytes_{0, 1};
  std::vector<double> seconds_{0, 0};
};

// Between two ranks: time of a message that is received, or received and reduced.
struct LevelModel {
  Curve move;
  Curve reduce;
};

struct MachineModel {
  std::vector<int> domain_of;  // of each rank
  LevelModel inner;            // within a domain
  LevelModel outer;            // between domains
  // Messages that go through the transport's buffers: what that costs the sender, and the receiver
  // beyond `move`.
  Curve post;
  Curve copy;  // within a rank
  // Of a combine, each contribution beyond two, per byte.
  double extra_part_s_per_byte = 0;
  // Ranks that move data themselves do one step after the other; else links work by themselves, and
  // `reduce` beyond `move` is what the rank's unit takes.
  bool rank_moves_data = true;
  // Ranks can write to each other's memory.
  bool shares_memory = false;
  // Each rank has a link to every other of its domain; else one port, a message at a time in each
  // direction.
  bool full_mesh = false;
  // How long a message keeps a port busy beyond its bytes: what the sender cannot overlap.
  double message_gap_s = 0;
  // All traffic that leaves a domain shares a link, and so does what enters it; 0: no such link.
  double domain_link_s_per_byte = 0;
};

struct SimulatedTime {
  double seconds = 0;  // until the last rank is done
  std::int64_t messages = 0;
  double bytes = 0;           // sent by all ranks together
  double crossing_bytes = 0;  // between domains
  bool complete = false;      // false: ranks wait for ever
};

// element_bytes and wide_bytes: of the storage and of the accumulation type.
SimulatedTime simulate(const Schedule& schedule, const MachineModel& model, int element_bytes,
                       int wide_bytes);

}  // namespace belay::comm
