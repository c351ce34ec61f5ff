#pragma once
// The memory that a run will take of each rank, for every way to share the state: what `belay plan`
// prints.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/plan/plan.h"
#include "belay/train/run_setup.h"

namespace belay {

// What one layout of the state takes of the rank that takes most.
struct LayoutPlan {
  int zero = 0;
  std::string refused;  // why training does not take it; then nothing else is said
  std::vector<MemoryItem> memory;

  [[nodiscard]] std::size_t of(const std::string& name) const;
  [[nodiscard]] std::size_t total() const;
};

// One for each value of parallel.zero; of one rank that of the run. Allocates none of it.
std::vector<LayoutPlan> plan_layouts(const RunSetup& setup, int ranks);

// A column for each layout that training takes, `configured` with a star, and below why it does not
// take the others.
std::string layout_table(const std::vector<LayoutPlan>& layouts, int ranks,
                         std::int64_t configured);
std::string layouts_to_json(const std::vector<LayoutPlan>& layouts, int ranks,
                            std::int64_t configured);

}  // namespace belay
