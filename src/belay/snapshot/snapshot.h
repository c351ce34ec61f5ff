#pragma once
// A snapshot is a directory that holds everything a run needs to go on exactly where it stood, and
// is a Hugging Face model directory at the same time:
//   config.json             the model, readable by transformers
//   model.safetensors       f32 weights under their Hugging Face names; tied ones stored once
//   optimizer.safetensors   "m.NAME" and "v.NAME", f32, for every parameter of our table
//   state.json              SnapshotState
//   tokenizer file          under its own name, when given
//   residuals.safetensors   what compression still owes, "rank-XXXXX/NAME", f32, where it is used
//   manifest.json           size and XXH3-64 hash of every other file
// It is written under a temporary name, synced and renamed, so a directory of the final name is
// always complete; `snapshots/latest` is then moved to it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "belay/model/model_config.h"
#include "belay/model/parameter_table.h"
#include "belay/optim/schedule.h"
#include "belay/snapshot/output_file.h"
#include "belay/snapshot/parameter_io.h"

namespace belay {

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

struct SnapshotState {
  std::int64_t step = 0;    // optimizer steps done
  std::int64_t tokens = 0;  // tokens seen
  // Data position: the next sample is number `data_sample` of epoch `data_epoch` in the order that
  // `data_seed` gives.
  std::uint64_t data_seed = 0;
  std::int64_t data_epoch = 0;
  std::int64_t data_sample = 0;
  std::uint64_t random_seed = 0;  // of dropout and initialisation
  std::string dtype;              // compute dtype: "f32", "bf16", "f16"
  ScheduleConfig schedule;
  OptimizerSettings optimizer;
  std::string config_toml;     // the run's effective configuration
  std::string matmul_choices;  // as the plan spells them; empty when none
  std::map<std::string, std::string> extra;

  friend bool operator==(const SnapshotState&, const SnapshotState&) = default;
};

struct SnapshotSource {
  ParameterReader weights, m, v;
};
struct SnapshotSink {
  ParameterSink weights, m, v;  // m and v may be empty: weights only
};

// A file that is complete already and moves into the snapshot, under the name given.
struct Attachment {
  std::string path;  // on the run directory's file system
  WrittenFile file;
};

struct SnapshotOptions {
  std::int64_t keep_last = 0;  // older snapshots are removed once the new one is in place; 0: never
  std::string tokenizer;       // path of a file to keep with the snapshot; empty: none
  std::vector<Attachment> attachments{};
};

// Writes RUN_DIR/snapshots/step-XXXXXXXX and returns its path. A snapshot of the same step is
// replaced. Error(capacity) with the bytes needed and free when it does not fit; nothing is left
// behind then, and the earlier snapshots and the pointer stay as they were.
std::string save_snapshot(const std::string& run_dir, const ModelConfig& config,
                          const ParameterTable& table, const SnapshotState& state,
                          const SnapshotSource& source, const SnapshotOptions& options = {});

// Verifies every hash and the model first, then hands out all parameters. Error(data) names the bad
// file, Error(usage) the first difference between the stored model and `expected`; no sink is
// called then.
SnapshotState load_snapshot(const std::string& dir, const ModelConfig& expected,
                            const ParameterTable& table, const SnapshotSink& sink);

// The state alone (no weights read, only state.json's hash is verified).
SnapshotState load_snapshot_state(const std::string& dir);

// Error(data) when the snapshot's own parts do not belong together (hashes are not looked at).
void check_snapshot(const std::string& dir);

struct FoundSnapshot {
  std::string dir;
  std::vector<std::string> passed_over;  // newer ones that are not usable, each with the reason
};

// The newest snapshot that is complete and whose hashes hold; nothing when the run has none at all.
// Error(data) naming all of them when there are some but none is usable.
std::optional<FoundSnapshot> find_latest_snapshot(const std::string& run_dir);

// Bytes that one snapshot takes on disk, a little rounded up.
std::uint64_t snapshot_bytes(const ParameterTable& table);

// Empty, or a warning with both numbers when the run directory has no room for one snapshot with
// so many bytes of attachments.
std::string snapshot_space_warning(const std::string& run_dir, const ParameterTable& table,
                                   std::uint64_t attachments = 0);
// The same as Error(capacity).
void require_snapshot_space(const std::string& run_dir, const ParameterTable& table,
                            std::uint64_t attachments = 0);

// Removes what saves of processes that no longer exist left behind; returns their names.
std::vector<std::string> clean_unfinished_snapshots(const std::string& run_dir);

}  // namespace belay
