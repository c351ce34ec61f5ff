#pragma once
// The data-parallel side of a run: which micro-batches this rank takes, and how the gradients of
// all ranks come together.

#include <memory>

#include "belay/parallel/batch_share.h"
#include "belay/parallel/compressed_reducer.h"
#include "belay/train/program.h"
#include "belay/train/rank_group.h"
#include "belay/train/residual_state.h"
#include "belay/train/run_config.h"

namespace belay {

// How `rank` of so many lays its state out, and what it then allocates to exchange data, on device
// and host.
ShardOptions sharding_of(const RunConfig& config, int rank, int ranks);
std::size_t exchange_bytes_of(const RunConfig& config, const ParameterTable& table, int rank,
                              int ranks);

class Replicas {
 public:
  // Error(usage) when the configuration does not suit the number of ranks. The configuration, and
  // the program connected, must outlive the replicas.
  Replicas(const RankGroup& ranks, const RunConfig& config);

  [[nodiscard]] BatchShare share() const;
  // How the program's state is to be laid out.
  [[nodiscard]] ShardOptions sharding() const {
    return sharding_of(config_, ranks_.rank(), ranks_.size());
  }
  // What connect() will allocate, on device and host.
  [[nodiscard]] std::size_t bytes(const ParameterTable& table) const {
    return exchange_bytes_of(config_, table, ranks_.rank(), ranks_.size());
  }
  // Every step of the program sums its gradients over the ranks from now on. `measured`: what the
  // run that goes on here found worth compressing, as Progress has it; empty: nothing was measured.
  // A collective.
  void connect(Device& device, Program& program, const std::string& measured = "");
  // Once every rank has loaded its part of the weights. Collective.
  void share_weights(Program& program);
  // Null: the state is not sharded.
  [[nodiscard]] ShardedState* sharded() { return sharded_.get(); }

  // What a measurement found worth compressing, for Progress; empty where none decided.
  [[nodiscard]] const std::string& measured_compression() const { return measured_compression_; }
  // What ranks still owe, for a snapshot; a collective. `run_dir`: the file may lie there
  // meanwhile.
  [[nodiscard]] ResidualFile collect_residuals(const std::string& run_dir) const;
  // Of that file.
  [[nodiscard]] std::uint64_t residual_bytes() const;
  // Takes over what the snapshot says this rank owes.
  void restore_residuals(const std::string& snapshot);

  // The next step, counted from 1, multiplies its losses by `multiplier`.
  void begin_step(std::int64_t step, double multiplier);
  // Whether the step changed the parameters.
  void end_step(bool updated);
  // Of the step; zeros with one rank.
  [[nodiscard]] ExchangeTimes times();
  [[nodiscard]] BucketTraffic traffic() const;

 private:
  [[nodiscard]] bool compresses() const;
  // Null where nothing is compressed. `before`: as for connect().
  [[nodiscard]] std::unique_ptr<BucketReducer> make_compressor(const ParameterTable& table,
                                                               const std::string& before);

  RankGroup ranks_;
  const RunConfig& config_;
  std::unique_ptr<GradientExchange> exchange_;  // with several ranks
  std::unique_ptr<ShardedState> sharded_;       // instead, where the state is sharded
  BucketReducer* reducer_ = nullptr;         // of either; null: of sharded_, nothing is compressed
  CompressedReducer* compressor_ = nullptr;  // the same, where something is compressed
  std::string measured_compression_;
  std::unique_ptr<StableSum> stable_;  // where order must not matter
  ShardedState::Times before_;         // the step
};

}  // namespace belay
