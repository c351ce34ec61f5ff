#pragma once
// For tests: a small model ready to run on a device, and batches in host memory.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay {

// [rows, seq_len] each.
struct TestBatch {
  std::int64_t rows = 0;
  std::int64_t seq_len = 0;
  std::vector<std::int32_t> tokens, targets, positions, doc_begin;

  // Whole rows as documents; token t is followed by the label tokens[t + 1], the last by none.
  static TestBatch of_rows(std::int64_t rows, std::int64_t seq_len,
                           std::vector<std::int32_t> tokens) {
    TestBatch batch{rows, seq_len, std::move(tokens), {}, {}, {}};
    for (std::int64_t i = 0; i < rows * seq_len; ++i) {
      const auto column = static_cast<std::int32_t>(i % seq_len);
      const bool last = column + 1 == seq_len;
      batch.targets.push_back(last ? -1 : batch.tokens[static_cast<std::size_t>(i + 1)]);
      batch.positions.push_back(column);
      batch.doc_begin.push_back(0);
    }
    return batch;
  }

  [[nodiscard]] HostBatch host(std::int64_t row_begin, std::int64_t count) const {
    const std::int64_t at = row_begin * seq_len;
    return {count, tokens.data() + at, targets.data() + at, positions.data() + at,
            doc_begin.data() + at};
  }
  [[nodiscard]] std::int64_t counted(std::int64_t row_begin, std::int64_t count) const {
    const auto begin = targets.begin() + row_begin * seq_len;
    return std::count_if(begin, begin + count * seq_len, [](std::int32_t t) { return t >= 0; });
  }
  [[nodiscard]] std::int64_t counted() const { return counted(0, rows); }
};

class ProgramHarness {
 public:
  // The weights are zero; see initialise(). `model` must be finished.
  ProgramHarness(const ModelConfig& model, const std::string& device, DType dtype,
                 std::int64_t rows, std::int64_t seq_len)
      : table_(make_parameter_table(model)), device_(make_device(device)) {
    ProgramConfig config;
    config.model = model;
    config.micro_batch = rows;
    config.seq_len = seq_len;
    config.compute = dtype;
    config.head_block_rows = 16;  // several blocks even for these few tokens
    PlanningOptions options;
    options.choose = false;
    options.calibrate = false;
    program_ = prepare_program(*device_, table_, config, options).program;
  }

  [[nodiscard]] const ParameterTable& table() const { return table_; }
  Program& program() { return *program_; }
  Lane& lane() { return program_->lane(); }
  [[nodiscard]] const ParameterStore& parameters() const { return program_->parameters(); }

  void initialise(std::uint64_t seed) { parameters().initialise(lane(), seed); }

  std::vector<float> read(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    ParameterStore::read(lane(), tensor, values);
    return values;
  }
  // The sum of the losses of the batch; when training, gradients of that sum are left behind.
  double loss_sum(const TestBatch& batch, std::int64_t rows_at_once, bool train) {
    program_->clear_loss(lane());
    for (std::int64_t row = 0; row < batch.rows; row += rows_at_once) {
      program_->run_micro_batch(
          lane(), batch.host(row, rows_at_once),
          {1, static_cast<std::uint64_t>(row), row + rows_at_once >= batch.rows}, train);
      lane().wait();
    }
    return program_->read_loss(lane());
  }

  // [tokens, vocab], by the path that keeps all logits.
  std::vector<double> logits(const TestBatch& batch) {
    constexpr std::size_t kArena = std::size_t{8} << 20;
    const auto saved_memory = device_->allocate(kArena, "test activations");
    const auto scratch_memory = device_->allocate(kArena, "test temporaries");
    Arena saved("test activations", saved_memory->address(), kArena);
    Arena scratch("test temporaries", scratch_memory->address(), kArena);
    const std::int64_t tokens = batch.rows * batch.seq_len;
    const auto upload = [&](const std::vector<std::int32_t>& values) {
      const Tensor tensor = saved.allocate(DType::i32, {tokens});
      lane().copy_in(tensor.data, values.data(), tensor.bytes());
      return tensor;
    };
    const PassInputs inputs{batch.rows,
                            batch.seq_len,
                            upload(batch.tokens),
                            upload(batch.targets),
                            upload(batch.positions),
                            upload(batch.doc_begin)};
    const Pass pass{lane(), parameters(), saved, scratch, inputs, {}, 0, false};
    const Tensor logits = saved.allocate(DType::f32, {tokens, program_->config().model.vocab});
    Transformer::Activations kept;
    program_->model().all_logits(pass, kept, logits);
    const std::vector<float> values = read(logits);
    return {values.begin(), values.end()};
  }

 private:
  ParameterTable table_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Program> program_;
};

}  // namespace belay
