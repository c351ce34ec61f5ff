#pragma once
// [train]: how long, how much at a time, in what arithmetic, and how often to look and to save.

#include <cstdint>
#include <span>
#include <string>

#include "belay/base/config.h"

namespace belay {

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t micro_batch = 0;   // rows per pass; 0: derived
  std::int64_t global_batch = 0;  // rows per step over all passes and ranks; 0: derived
  std::int64_t accumulation = 0;  // passes per step and rank; 0: derived
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
  std::string device = "cpu";
  std::int64_t log_every = 1;
  std::int64_t eval_every = 0;
  std::int64_t eval_batches = 0;
  std::int64_t snapshot_every = 0;
  std::int64_t keep_snapshots = 2;
  std::int64_t head_block_rows = 0;

  static constexpr std::string_view kSection = "train";
  static std::span<const config::Field> fields();
};

// Fills in micro_batch, global_batch and accumulation so that
// global = micro * accumulation * data_parallel, or less where micro-batches do not divide by the
// ranks: then some take one fewer than `accumulation`. Error(usage) naming all four numbers and the
// nearest valid ones when what is given does not fit.
void resolve_batch(TrainConfig& config, std::int64_t data_parallel);

}  // namespace belay
