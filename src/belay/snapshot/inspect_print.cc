#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/inspect.h"
#include "belay/snapshot/snapshot_state.h"

namespace belay {
namespace {

std::string tensor_line(const InspectedTensor& tensor, std::size_t name_width) {
  std::string line = fmt::format("    {:<{}}  {:<5} {}", tensor.name, name_width,
                                 name_of(tensor.dtype), shape_text(tensor.shape));
  if (tensor.norms) {
    line += fmt::format("  norm {:.6g}, largest {:.6g}", tensor.norms->l2, tensor.norms->max_abs);
    if (tensor.norms->non_finite > 0) {
      line += fmt::format(", {} NOT FINITE", tensor.norms->non_finite);
    }
  }
  return line + "\n";
}

std::string state_lines(const SnapshotState& state) {
  return fmt::format(
      "  step        {} ({} tokens, computed in {})\n"
      "  data        epoch {}, next sample {}, order seed {}\n"
      "  schedule    {}: lr {:g}, min_lr {:g}, warm-up {}, total {} steps\n"
      "  optimizer   betas {:g} {:g}, eps {:g}, weight decay {:g}, clip norm {:g}\n",
      state.step, state.tokens, state.dtype, state.data_epoch, state.data_sample, state.data_seed,
      name_of(state.schedule.kind), state.schedule.lr, state.schedule.min_lr,
      state.schedule.warmup_steps, state.schedule.total_steps, state.optimizer.beta1,
      state.optimizer.beta2, state.optimizer.eps, state.optimizer.weight_decay,
      state.optimizer.clip_norm);
}

}  // namespace

std::string describe_model(const ModelConfig& config) {
  std::string text = fmt::format(
      "{}: {} layers, hidden {}, heads {} (kv {}, dim {}), ffn {}, vocab {}, seq_len {}, {} head",
      name_of(config.family), config.layers, config.hidden, config.heads, config.kv_heads,
      config.head_dim, config.ffn, config.vocab, config.seq_len,
      config.tie_embeddings ? "tied" : "own");
  if (!config.learned_positions()) {
    text += fmt::format(", rope {:g}", config.rope.theta);
    if (config.rope.scaling != RopeScaling::none) {
      text += fmt::format(" ({} x {:g})", name_of(config.rope.scaling), config.rope.factor);
    }
  }
  return text;
}

std::string inspection_text(const Inspection& inspection) {
  std::string text =
      fmt::format("{}\n  kind        {}{}\n", inspection.path, inspection.kind,
                  inspection.engine.empty() ? "" : ", written by belay " + inspection.engine);
  if (inspection.config) {
    text += fmt::format("  model       {}\n  parameters  {}\n", describe_model(*inspection.config),
                        inspection.parameters);
  }
  if (inspection.state) text += state_lines(*inspection.state);
  for (const InspectedFile& file : inspection.files) {
    text +=
        fmt::format("  {} ({} bytes{})\n", file.name, file.bytes,
                    file.tensors.empty() ? "" : fmt::format(", {} tensors", file.tensors.size()));
    std::size_t width = 0;
    for (const InspectedTensor& tensor : file.tensors) width = std::max(width, tensor.name.size());
    for (const InspectedTensor& tensor : file.tensors) text += tensor_line(tensor, width);
  }
  return text;
}

std::string inspection_json(const Inspection& inspection) {
  nlohmann::ordered_json json;
  json["path"] = inspection.path;
  json["kind"] = inspection.kind;
  if (!inspection.engine.empty()) json["engine"] = inspection.engine;
  if (inspection.config) {
    json["config"] = nlohmann::ordered_json::parse(hf_config_text(*inspection.config, DType::f32));
    json["config"].erase("torch_dtype");  // the files below say what is stored
    json["parameters"] = inspection.parameters;
  }
  if (inspection.state) {
    json["state"] = nlohmann::ordered_json::parse(state_text(*inspection.state));
  }
  json["files"] = nlohmann::ordered_json::array();
  for (const InspectedFile& file : inspection.files) {
    nlohmann::ordered_json entry = {{"name", file.name}, {"bytes", file.bytes}};
    for (const InspectedTensor& tensor : file.tensors) {
      nlohmann::ordered_json item = {{"name", tensor.name},
                                     {"dtype", name_of(tensor.dtype)},
                                     {"shape", tensor.shape},
                                     {"bytes", tensor.bytes}};
      if (tensor.norms) {
        item["norm"] = tensor.norms->l2;
        item["max_abs"] = tensor.norms->max_abs;
        item["non_finite"] = tensor.norms->non_finite;
      }
      entry["tensors"].push_back(std::move(item));
    }
    json["files"].push_back(std::move(entry));
  }
  // Names come from files and may hold anything.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace belay
