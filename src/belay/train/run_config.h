#pragma once
// RunConfig: everything that a run's TOML file says, all sections in one place.

#include <string>
#include <vector>

#include "belay/comm/comm_config.h"
#include "belay/data/data_config.h"
#include "belay/machine/machine_config.h"
#include "belay/model/model_config.h"
#include "belay/observe/observe_config.h"
#include "belay/optim/optimizer_config.h"
#include "belay/parallel/parallel_config.h"
#include "belay/precision/arithmetic_config.h"
#include "belay/precision/precision_config.h"
#include "belay/snapshot/snapshot_config.h"
#include "belay/train/train_config.h"

namespace belay {

struct RunConfig {
  ModelConfig model = family_defaults(Family::llama);
  std::string model_path;  // model.path: a Hugging Face directory; empty: the numbers of [model]
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ArithmeticConfig arithmetic;
  PrecisionConfig precision;
  ParallelConfig parallel;
  comm::CommConfig comm;
  SnapshotConfig snapshot;
  ObserveConfig observe;
  MachineConfig machine;
};

// The sections in the order of the file, bound to `config`.
std::vector<config::Section> sections_of(RunConfig& config);

// Reads the file (the family's defaults first), applies the --set overrides in order, derives the
// batch sizes and refuses what does not fit together. The model is not finished: its vocabulary
// may come from the tokenizer, or all of it from model_path. Throws Error(usage) or Error(data).
// `ranks` share each global batch.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                      int ranks = 1);

// The same from text, for tests and presets; `source` names it in messages.
RunConfig parse_config(std::string_view text, std::string_view source,
                       const std::vector<std::string>& overrides, int ranks = 1);

// Error(usage) where the exchange that is asked for does not go with parallel.zero; batches are
// resolved.
void check_sharing(const RunConfig& config, int ranks);

// The configuration in force, as TOML with comments; load_config reads it back unchanged.
std::string to_toml(RunConfig config);

}  // namespace belay
