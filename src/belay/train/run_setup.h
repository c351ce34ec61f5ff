#pragma once
// What a run is made of, resolved from its configuration: data opened and checked, model finished,
// device, plan and program ready.

#include <optional>
#include <string>

#include "belay/data/dataset.h"
#include "belay/train/planning.h"
#include "belay/train/rank_group.h"
#include "belay/train/run_config.h"

namespace belay {

struct RunSetup {
  RunConfig config;          // with everything derived filled in
  std::int64_t seq_len = 0;  // tokens per row; at most config.model.seq_len
  data::Dataset train;
  std::optional<data::Dataset> val;
  ParameterTable table;
  std::unique_ptr<Device> device;
  int ranks = 1;  // that train together
};

// Opens the data, takes the model from model.path or [model] (its vocabulary from the data's
// tokenizer when not set), and refuses what does not fit together: ids beyond the vocabulary,
// rows longer than the position table, a model that its config.json cannot say. Nothing is
// allocated yet.
RunSetup set_up_run(RunConfig config);
// The same on every rank, each of which opens the data for itself; Error(data) if they differ.
RunSetup set_up_run(RunConfig config, const RankGroup& ranks);

// As the user would write it: model.seq_len is the row length, which may be shorter than the
// position table of an imported model.
RunConfig effective_config(const RunSetup& setup);

ProgramConfig program_config(const RunSetup& setup);
PlanningOptions planning_options(const RunConfig& config);

}  // namespace belay
