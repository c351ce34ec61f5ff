#pragma once
// Everything a training step touches on one device, and the step cut into its parts. Built once on
// a DryDevice to learn sizes and operators, then on the real one.

#include <memory>
#include <vector>

#include "belay/model/transformer.h"
#include "belay/parallel/gradient_exchange.h"
#include "belay/parallel/sharded_state.h"
#include "belay/parallel/stable_sum.h"

namespace belay {

struct ProgramConfig {
  ModelConfig model;  // finished
  std::int64_t micro_batch = 1;
  std::int64_t seq_len = 1;
  DType compute = DType::f32;
  std::int64_t head_block_rows = 512;
  double z_loss = 0.0;
  std::uint64_t seed = 1;
  bool train = true;
  Protection protection{};
  ShardOptions shard{};
};

struct ArenaSizes {
  std::size_t saved = 0;
  std::size_t scratch = 0;
  std::size_t workspace = 0;
};

// Host memory of one micro-batch: [rows, seq_len] i32 each.
struct HostBatch {
  std::int64_t rows = 0;
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* doc_begin = nullptr;
};

// `step` and `first_row`, of the global batch, key dropout.
struct MicroBatchPlace {
  std::uint32_t step = 1;
  std::uint64_t first_row = 0;
  bool last = true;  // of the step
  bool first = true;
};

struct UpdateSettings {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  // updates so far, this one included: bias correction
  double grad_scale = 1.0;
};

class Program {
 public:
  // `table` must be that of config.model and outlive the program. Error(capacity) when memory
  // lacks.
  Program(Device& device, const ParameterTable& table, const ProgramConfig& config,
          const ArenaSizes& sizes);

  [[nodiscard]] Lane& lane() { return *lane_; }
  [[nodiscard]] const ParameterStore& parameters() const { return store_; }
  [[nodiscard]] const Transformer& model() const { return *model_; }
  [[nodiscard]] const ProgramConfig& config() const { return config_; }
  // The last micro-batch of a step sums its gradients over the ranks with this, or every one if it
  // is pipelined; null: there is one rank. Not owned.
  void set_exchange(GradientExchange* exchange) { exchange_ = exchange; }
  // Instead, where the configuration shards the state over the ranks. Not owned.
  void set_sharded(ShardedState* sharded) { sharded_ = sharded; }
  // Gradients are summed over the ranks, and kept apart, micro-batch by micro-batch; null: added up
  // as they come. Not owned.
  void set_stable_sum(StableSum* sum) { stable_ = sum; }
  [[nodiscard]] bool sums_stably() const { return stable_ != nullptr; }
  // Whether the ranks meet in every micro-batch, not only in the last one of a step.
  [[nodiscard]] bool joins_every_round() const {
    return stable_ != nullptr || (exchange_ != nullptr && exchange_->pipelined()) ||
           (sharded_ != nullptr && sharded_->exchanges_every_round());
  }

  // Uploads the batch and runs forward (and backward when train) on `lane`; rows <= micro_batch.
  // Losses of counted tokens are added to the loss sum. The last micro-batch of a step takes the
  // sum of squares of every gradient as soon as it is complete.
  void run_micro_batch(Lane& lane, const HostBatch& batch, const MicroBatchPlace& place,
                       bool train);
  // What later micro-batches multiply their losses by before backward (not what read_loss adds up).
  void set_loss_multiplier(double multiplier) { loss_multiplier_ = static_cast<float>(multiplier); }
  // Where ranks meet in every round: for a rank without a micro-batch in the last one of a step.
  void join_last_round(Lane& lane);
  // For a rank without a micro-batch where others have one that is not for training.
  void join_forward(Lane& lane);
  void clear_loss(Lane& lane);
  // Waits; the sum of the token losses since clear_loss.
  double read_loss(Lane& lane);
  // Waits; the sum of squares of each parameter's gradient, in table order, as of the last
  // micro-batch. The view stays valid until the next call.
  std::span<const double> read_gradient_squares(Lane& lane);
  // With an exchange and no stable sum: whether this rank's gradients of the step were finite
  // before they were summed over the ranks.
  [[nodiscard]] bool own_gradients_finite() const { return own_finite_; }
  void update(Lane& lane, const UpdateSettings& settings);
  void clear_gradients(Lane& lane);
  // Gradients and moments to zero; waits.
  void clear_state(Lane& lane);

  // Drives one whole step on a lane that only records: for plans and calibration.
  void record_step(Lane& lane);

  [[nodiscard]] ArenaSizes peaks() const { return {saved_.peak(), scratch_.peak(), 0}; }
  [[nodiscard]] std::size_t input_bytes() const;  // inputs, losses and sums

 private:
  class SquaresOfGradients;
  class OwnSquares;
  [[nodiscard]] bool has_ranks() const { return exchange_ != nullptr || sharded_ != nullptr; }
  // Whether the sums of rounds are added to this rank's shard of the gradients.
  [[nodiscard]] bool adds_rounds() const {
    return stable_ == nullptr && sharded_ != nullptr && sharded_->exchanges_every_round();
  }
  [[nodiscard]] double* squares_address() const;
  [[nodiscard]] double* own_squares_address() const;
  void take_squares(Lane& lane, std::span<const ShardRun> runs);
  void run_backward(Pass& pass, const MicroBatchPlace& place);
  void add_round(Lane& lane, bool last);
  void note_own_squares(Lane& lane, bool first);
  [[nodiscard]] PassInputs inputs(std::int64_t rows) const;

  ProgramConfig config_;
  const ParameterTable& table_;
  std::unique_ptr<Lane> lane_;
  ParameterStore store_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<DeviceMemory> saved_memory_;
  std::unique_ptr<DeviceMemory> scratch_memory_;
  std::unique_ptr<DeviceMemory> input_memory_;
  std::unique_ptr<DeviceMemory> sums_memory_;
  Arena saved_;
  Arena scratch_;
  Transformer::Activations activations_;
  std::vector<double> host_pieces_;   // sums of squares
  std::vector<double> host_squares_;  // of each parameter
  std::vector<double> host_own_squares_;
  GradientExchange* exchange_ = nullptr;
  ShardedState* sharded_ = nullptr;
  Lane* squares_lane_ = nullptr;
  GradientScatter::Ready shard_ready_;
  StableSum* stable_ = nullptr;
  bool own_finite_ = true;  // so far in the step
  float loss_multiplier_ = 1.0F;
};

}  // namespace belay
