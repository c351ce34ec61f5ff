#pragma once
// Measures the machine model that choices are made by.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// Calibrates, and times the candidates of all_reduce, reduce_scatter and all_gather at a few sizes
// to correct the model where it is wrong. A collective call; the communicator's chooser stays.
std::shared_ptr<const ChoiceTable> predict_choices(Communicator& comm,
                                                   const std::vector<int>& domain_of,
                                                   const CalibrationOptions& options = {});
Chooser by_table(std::shared_ptr<const ChoiceTable> table);

struct NamedChooser {
  Chooser chooser;
  std::string table;  // of its choices, if it has one
};

// The chooser of that name (ChooserKind) with the forced choices in front; does not set it. A
// collective call. Error(usage) for another name.
NamedChooser chooser_named(Communicator& comm, std::string_view name,
                           const std::vector<ForcedChoice>& forced,
                           const std::vector<int>& domain_of);

}  // namespace belay::comm
