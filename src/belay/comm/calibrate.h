#pragma once
// Measures the machine model that choices are made by.

#include "belay/comm/communicator.h"
#include "belay/comm/simulator.h"

namespace belay::comm {

struct CalibrationOptions {
  std::size_t most_bytes = std::size_t{16} << 20;  // largest message
  // Whether the candidates that the model finds near the best are timed as well.
  bool measure_candidates = true;
};

// Times rounds in which every rank receives from its neighbour at once: within domains, and across
// them; received, received and reduced, and through the transport's buffers. A collective call: all
// ranks get the same model, that of the slowest rank at each point.
MachineModel calibrate(Communicator& comm, const std::vector<int>& domain_of,
                       const CalibrationOptions& options = {});

// Calibrates, times the candidates of all_reduce, reduce_scatter and all_gather at a few sizes to
// correct the model where it is wrong, and chooses by it from then on. The table is for printing.
std::shared_ptr<const ChoiceTable> choose_by_model(Communicator& comm,
                                                   const std::vector<int>& domain_of,
                                                   const std::vector<ForcedChoice>& forced = {},
                                                   const CalibrationOptions& options = {});

}  // namespace belay::comm
