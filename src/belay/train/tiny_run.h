#pragma once
// Test helper: a tiny model and hand-made micro-batches.

#include <numeric>

#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay::testing {

// 2 layers, hidden 32, 4 heads, vocabulary 64.
inline ModelConfig tiny_model(Family family, std::int64_t seq_len = 8) {
  ModelConfig config = family_defaults(family);
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = family == Family::gpt2 ? 4 : 2;
  config.ffn = 64;
  config.vocab = 64;
  config.seq_len = seq_len;
  finish_config(config);
  return config;
}

struct TinyRun {
  ModelConfig model;
  ParameterTable table;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;

  explicit TinyRun(const ModelConfig& config, std::int64_t micro_batch = 2,
                   const std::string& device_name = "cpu", DType compute = DType::f32,
                   const Protection& protection = {}, const ShardOptions& shard = {})
      : model(config), table(make_parameter_table(model)), device(make_device(device_name)) {
    ProgramConfig program_config;
    program_config.model = model;
    program_config.micro_batch = micro_batch;
    program_config.seq_len = model.seq_len;
    program_config.compute = compute;
    program_config.head_block_rows = 5;
    program_config.protection = protection;
    program_config.shard = shard;
    PlanningOptions planning;
    planning.calibrate = false;
    planning.matmul = device_name == "cpu" ? "belay" : "reference";
    program = prepare_program(*device, table, program_config, planning).program;
    program->parameters().initialise(program->lane(), 1);
  }

  [[nodiscard]] std::vector<float> read(int index) const {
    std::vector<float> values(static_cast<std::size_t>(table[index].elements()));
    ParameterStore::read(program->lane(), program->parameters().master(index), values);
    return values;
  }
  [[nodiscard]] std::vector<std::vector<float>> all_weights() const {
    std::vector<std::vector<float>> all;
    for (int index = 0; index < table.size(); ++index) all.push_back(read(index));
    return all;
  }
};

// Rows of pseudo-random tokens, one document each, every next token a target.
struct TinyBatch {
  std::int64_t rows;
  std::vector<std::int32_t> tokens, targets, positions, doc_begin;

  TinyBatch(const ModelConfig& model, std::int64_t row_count, std::uint64_t seed = 1)
      : rows(row_count) {
    const std::int64_t count = row_count * model.seq_len;
    for (std::int64_t i = 0; i < count; ++i) {
      const PhiloxBlock words = random_block({seed, 0, 9}, static_cast<std::uint64_t>(i));
      const auto vocab = static_cast<std::uint32_t>(model.vocab);
      tokens.push_back(static_cast<std::int32_t>(words[0] % vocab));
      targets.push_back(static_cast<std::int32_t>(words[1] % vocab));
      positions.push_back(static_cast<std::int32_t>(i % model.seq_len));
      doc_begin.push_back(0);
    }
  }
  // Some rows of it, as a micro-batch.
  [[nodiscard]] MicroBatch micro(std::int64_t begin, std::int64_t end) const {
    const auto row = static_cast<std::ptrdiff_t>(tokens.size()) / rows;
    const auto at = [&](const std::vector<std::int32_t>& values) {
      return values.data() + begin * row;
    };
    std::int64_t counted = 0;
    for (auto i = begin * row; i < end * row; ++i) {
      if (targets[static_cast<std::size_t>(i)] >= 0) ++counted;
    }
    return {{end - begin, at(tokens), at(targets), at(positions), at(doc_begin)}, counted};
  }
  [[nodiscard]] MicroBatch micro() const { return micro(0, rows); }
};

inline OptimizerConfig plain_optimizer() {
  OptimizerConfig optimizer;
  optimizer.schedule = ScheduleKind::constant;
  optimizer.lr = 1e-3;
  return optimizer;
}

}  // namespace belay::testing
