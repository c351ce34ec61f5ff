#pragma once
// Which micro-batches of a step a data-parallel rank takes: its a-th is number a * ranks + rank of
// the step. A step whose micro-batches do not divide by the ranks gives the first ranks one more.

#include <cstdint>

#include "belay/data/loader.h"

namespace belay {

struct BatchShare {
  int rank = 0;
  int ranks = 1;
  std::int64_t rows = 1;           // of a micro-batch
  std::int64_t micro_batches = 1;  // of the step; at least `ranks`

  // Those of this rank.
  [[nodiscard]] std::int64_t count() const { return (micro_batches - rank + ranks - 1) / ranks; }
  // Those of the ranks that have most.
  [[nodiscard]] std::int64_t rounds() const { return (micro_batches + ranks - 1) / ranks; }
  // The number within the step of its a-th.
  [[nodiscard]] std::int64_t number(std::int64_t a) const { return a * ranks + rank; }

  // How a loader delivers them, from the step that begins at sample position `start` on.
  [[nodiscard]] data::LoaderOptions loading(std::int64_t start) const {
    data::LoaderOptions options;
    options.rows = rows;
    options.start = start;
    options.stride = rows * ranks;
    options.offset = rows * rank;
    options.per_step = count();
    options.step_rows = micro_batches * rows;
    return options;
  }
};

}  // namespace belay
