#pragma once
// Which algorithm a call takes. All ranks must come to the same choice, so it is made from what all
// know alike: collective, number of ranks, bytes, and a model that all share.

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/comm/algorithm.h"
#include "belay/comm/simulator.h"

namespace belay::comm {

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int segments = 1;
  Inner inner = Inner::direct;
  Outer outer = Outer::ring;

  friend bool operator==(const Choice&, const Choice&) = default;
};

// In the signature of a call, and back.
void put_choice(Signature& signature, const Choice& choice);
Choice choice_of(const Signature& signature);

// "ring", "segmented_ring x4", "hierarchical direct/ring".
std::string to_string(const Choice& choice);

// What runs instead where ranks do not share memory: a direct exchange takes the place of
// direct_store.
Choice without_shared_memory(Choice choice);

// bytes: of the whole vector.
using Chooser = std::function<Choice(Collective collective, int ranks, std::size_t bytes)>;

// --- By size alone.
// Doubling for small messages, direct exchange on a few ranks (through shared memory if there is),
// rings on many: without a model.
Choice choose_by_size(Collective collective, int ranks, std::size_t bytes);
// Fixed tables for all_reduce, to compare with. The rest as choose_by_size.
// Recursive doubling below 1 MB, double tree below 16 MB, ring above.
Choice choose_doubling_tree_ring(Collective collective, int ranks, std::size_t bytes);
// Ring below 1 MB, double tree below 128 MB, hierarchical above.
Choice choose_ring_tree_hierarchical(Collective collective, int ranks, std::size_t bytes);

// --- By predicted time.
struct ChoiceEntry {
  std::size_t bytes = 0;  // up to this size
  Choice choice;
  double predicted_s = 0;
};

// Measured seconds of candidates at one size, 0 where one was not measured.
struct MeasuredSize {
  std::size_t bytes = 0;
  std::vector<double> seconds;  // of each of candidates_of()
};

// For every collective and power of two of bytes the choice with the least predicted time.
class ChoiceTable {
 public:
  // Predicts by simulation. post_bytes: of the transport. Of equal times the first candidate wins,
  // in the order of candidates_of().
  ChoiceTable(const MachineModel& model, int ranks, std::size_t post_bytes);

  // Corrects predictions by what candidates took at some sizes (in growing order): by their ratio,
  // between sizes by the ratios of both neighbours. Candidates that were measured nowhere are out.
  void correct(Collective collective, std::span<const MeasuredSize> measured);

  [[nodiscard]] const Choice& choose(Collective collective, std::size_t bytes) const {
    return entry(collective, bytes).choice;
  }
  [[nodiscard]] const ChoiceEntry& entry(Collective collective, std::size_t bytes) const;
  [[nodiscard]] std::span<const ChoiceEntry> entries(Collective collective) const {
    return of(collective).entries;
  }
  [[nodiscard]] std::span<const Choice> candidates(Collective collective) const {
    return of(collective).candidates;
  }
  // Of each candidate, as simulated.
  [[nodiscard]] std::span<const double> predictions(Collective collective, std::size_t bytes) const;
  // Lines of collective, size, choice and predicted time.
  [[nodiscard]] std::string to_text() const;

 private:
  struct Part {
    std::vector<Choice> candidates;
    std::vector<std::vector<double>> predictions;  // by size, by candidate
    std::vector<ChoiceEntry> entries;              // by size
  };
  [[nodiscard]] const Part& of(Collective collective) const {
    return parts_[static_cast<std::size_t>(collective)];
  }
  [[nodiscard]] std::size_t index_of(Collective collective, std::size_t bytes) const;

  std::array<Part, kCollectives> parts_;
};

// What may be chosen; hierarchies only if there are domains, and what writes to the memory of other
// ranks only if they share it.
std::vector<Choice> candidates_of(Collective collective, int ranks, bool domains,
                                  bool shared_memory);

// --- Forced choices: "all_reduce=ring", "all_reduce:0-65536=recursive_doubling",
// "broadcast:1048576-=chain x16". Error(usage) for what is not one.
struct ForcedChoice {
  Collective collective = Collective::all_reduce;
  std::size_t least_bytes = 0;
  std::size_t most_bytes = ~std::size_t{0};
  Choice choice;
};
ForcedChoice parse_forced(std::string_view text);
// The first that matches, else what `otherwise` says.
Chooser with_forced(std::vector<ForcedChoice> forced, Chooser otherwise);

}  // namespace belay::comm
