#pragma once
// Loader: batches of rows, filled ahead of use by worker threads into buffers that are allocated
// once. What a batch holds is a function of its number alone, so it does not depend on workers.

#include <cstdint>
#include <memory>
#include <span>

#include "belay/data/dataset.h"
#include "belay/data/sample_order.h"

namespace belay::data {

struct Batch {  // [rows, seq_len] each; 128-byte aligned host memory of the loader, valid until the
                // next call of next()
  std::int64_t rows = 0;
  std::int64_t seq_len = 0;
  std::span<const std::int32_t> tokens;     // padding included
  std::span<const std::int32_t> targets;    // -1: not counted
  std::span<const std::int32_t> positions;  // restart at every document
  std::span<const std::int32_t> doc_begin;  // attention bound, within the row
  std::int64_t counted = 0;                 // targets >= 0; may be 0
  std::span<const std::int64_t> samples;    // [rows] sample index; -1: a row of padding
};

struct LoaderOptions {
  std::int64_t rows = 1;  // per batch
  // Batch b takes positions start + b * stride + offset + [0, rows). One process leaves offset 0
  // and stride 0, which means rows; with several, stride is the rows of all of them.
  std::int64_t start = 0;
  std::int64_t stride = 0;
  std::int64_t offset = 0;
  // In the shuffled order, where processes take unequal shares of a step: batches of this one per
  // step, and rows of the step. Batch b then counts from the beginning of step b / per_step. 0: all
  // take the same.
  std::int64_t per_step = 0;
  std::int64_t step_rows = 0;
  int depth = 4;    // batches held, the one in use included; >= 2
  int workers = 1;  // 0: next() fills the batch itself
};

class Loader {
 public:
  // Endless, in the shuffled order. Both must outlive the loader.
  Loader(const Dataset& dataset, const SampleOrder& order, const LoaderOptions& options);
  // Sequential: each sample once in batches() batches, the last one filled up with rows of padding;
  // then from the first sample again. options.start must be 0.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // The next batch. Waits if it is not ready; rethrows what went wrong while filling it. Allocates
  // nothing.
  const Batch& next();

  // Batches of one pass over the samples: ceil(samples / stride).
  [[nodiscard]] std::int64_t batches() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belay::data
