#include "belay/plan/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"

namespace belay {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PlannedOp& op) {
  Json json = {{"op", op.op},           {"kernel", op.kernel}, {"tag", op.tag},
               {"calls", op.calls},     {"flops", op.flops},   {"bytes", op.bytes},
               {"us", op.seconds * 1e6}};
  if (!op.shape.empty()) json["shape"] = op.shape;
  if (op.seconds > 0) {
    json["gflops"] = op.flops / op.seconds * 1e-9;
    json["gbytes_per_s"] = op.bytes / op.seconds * 1e-9;
  }
  return json;
}

Json choice_json(const MatmulChoice& choice) {
  return {{"kernel", choice.kernel}, {"flops_per_s", choice.flops_per_s}};
}

}  // namespace

std::size_t Plan::total_bytes() const {
  std::size_t total = 0;
  for (const MemoryItem& item : memory) total += item.bytes;
  return total;
}

void predict(Plan& plan) {
  StepPrediction& p = plan.predicted;
  p = {};
  for (const PlannedOp& op : plan.ops) {
    const double ms = op.seconds * 1e3 * static_cast<double>(op.calls);
    if (op.tag == "optimizer") {
      p.optimizer_ms += ms;
    } else if (op.tag == "backward") {
      p.backward_ms += ms;
    } else {
      p.forward_ms += ms;
    }
  }
  p.step_ms = p.forward_ms + p.backward_ms + p.optimizer_ms;
  if (p.step_ms > 0) {
    p.tokens_per_s = static_cast<double>(plan.tokens_per_step) / p.step_ms * 1e3;
  }
}

std::string plan_to_json(const Plan& plan) {
  Json memory = Json::object();
  for (const MemoryItem& item : plan.memory) memory[item.name] = item.bytes;
  Json matmuls = Json::object();
  for (const auto& [key, choice] : plan.matmuls) matmuls[key.text()] = choice_json(choice);
  Json ops = Json::array();
  for (const PlannedOp& op : plan.ops) ops.push_back(to_json(op));
  const StepPrediction& p = plan.predicted;
  const Json json = {{"version", 1},
                     {"device", plan.device},
                     {"threads", plan.threads},
                     {"dtype", plan.dtype},
                     {"parameters", plan.parameters},
                     {"micro_batch", plan.micro_batch},
                     {"accumulation", plan.accumulation},
                     {"seq_len", plan.seq_len},
                     {"tokens_per_step", plan.tokens_per_step},
                     {"model_flops_per_token", plan.model_flops_per_token},
                     {"memory_bytes", memory},
                     {"memory_total_bytes", plan.total_bytes()},
                     {"matmuls", matmuls},
                     {"ops", ops},
                     {"predicted",
                      {{"forward_ms", p.forward_ms},
                       {"backward_ms", p.backward_ms},
                       {"optimizer_ms", p.optimizer_ms},
                       {"step_ms", p.step_ms},
                       {"tokens_per_s", p.tokens_per_s}}}};
  return json.dump(2) + "\n";
}

std::string choices_to_json(const MatmulChoices& choices) {
  std::vector<std::pair<std::string, MatmulChoice>> sorted;
  for (const auto& [key, choice] : choices.all()) sorted.emplace_back(key.text(), choice);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Json json = Json::object();
  for (const auto& [text, choice] : sorted) json[text] = choice_json(choice);
  return json.dump();
}

void choices_from_json(std::string_view text, std::string_view source, MatmulChoices& choices) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail(ExitCode::data, "{}: the kernel choices are not JSON", source);
  for (const auto& [shape, entry] : json.items()) {
    if (!entry.is_object() || !entry.contains("kernel") || !entry["kernel"].is_string()) {
      fail(ExitCode::data, "{}: the kernel choice of '{}' has no kernel", source, shape);
    }
    MatmulChoice choice{entry["kernel"].get<std::string>(), 0};
    if (entry.contains("flops_per_s") && entry["flops_per_s"].is_number()) {
      choice.flops_per_s = entry["flops_per_s"].get<double>();
    }
    choices.set(MatmulKey::parse(shape), std::move(choice));
  }
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : (bytes < 10 ? 2 : 1), kUnits[unit]);
}

std::string describe_memory(const Plan& plan) {
  std::string text;
  for (const MemoryItem& item : plan.memory) {
    text +=
        fmt::format("  {:<24} {:>10}\n", item.name, human_bytes(static_cast<double>(item.bytes)));
  }
  return text + fmt::format("  {:<24} {:>10}\n", "total",
                            human_bytes(static_cast<double>(plan.total_bytes())));
}

}  // namespace belay
