#include "belay/snapshot/snapshot_state.h"

#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/snapshot/json_number.h"

namespace belay {

std::string state_text(const SnapshotState& state) {
  nlohmann::ordered_json json;
  json["step"] = state.step;
  json["tokens"] = state.tokens;
  json["data"] = {
      {"seed", state.data_seed}, {"epoch", state.data_epoch}, {"sample", state.data_sample}};
  json["random_seed"] = state.random_seed;
  json["dtype"] = state.dtype;
  json["schedule"] = {
      {"kind", name_of(state.schedule.kind)},      {"lr", state.schedule.lr},
      {"min_lr", state.schedule.min_lr},           {"warmup_steps", state.schedule.warmup_steps},
      {"total_steps", state.schedule.total_steps}, {"decay_steps", state.schedule.decay_steps}};
  json["optimizer"] = {{"beta1", state.optimizer.beta1},
                       {"beta2", state.optimizer.beta2},
                       {"eps", state.optimizer.eps},
                       {"weight_decay", state.optimizer.weight_decay},
                       {"clip_norm", state.optimizer.clip_norm}};
  json["config_toml"] = state.config_toml;
  json["matmul_choices"] = state.matmul_choices;
  json["extra"] = state.extra;
  try {
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "the run's state cannot be written: {}", error.what());
  }
}

SnapshotState parse_state(std::string_view text, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) fail(ExitCode::data, "{}: not JSON; the file is damaged", path);
  SnapshotState state;
  try {
    state.step = whole_number<std::int64_t>(json, "step", path);
    state.tokens = whole_number<std::int64_t>(json, "tokens", path);
    const nlohmann::json& data = json.at("data");
    state.data_seed = whole_number<std::uint64_t>(data, "seed", path);
    state.data_epoch = whole_number<std::int64_t>(data, "epoch", path);
    state.data_sample = whole_number<std::int64_t>(data, "sample", path);
    state.random_seed = whole_number<std::uint64_t>(json, "random_seed", path);
    json.at("dtype").get_to(state.dtype);
    const nlohmann::json& schedule = json.at("schedule");
    const auto kind_name = schedule.at("kind").get<std::string>();
    const std::optional<ScheduleKind> kind = parse_schedule(kind_name);
    if (!kind) fail(ExitCode::data, "{}: schedule '{}' is not known", path, kind_name);
    state.schedule.kind = *kind;
    schedule.at("lr").get_to(state.schedule.lr);
    schedule.at("min_lr").get_to(state.schedule.min_lr);
    state.schedule.warmup_steps = whole_number<std::int64_t>(schedule, "warmup_steps", path);
    state.schedule.total_steps = whole_number<std::int64_t>(schedule, "total_steps", path);
    state.schedule.decay_steps = whole_number<std::int64_t>(schedule, "decay_steps", path);
    const nlohmann::json& optimizer = json.at("optimizer");
    optimizer.at("beta1").get_to(state.optimizer.beta1);
    optimizer.at("beta2").get_to(state.optimizer.beta2);
    optimizer.at("eps").get_to(state.optimizer.eps);
    optimizer.at("weight_decay").get_to(state.optimizer.weight_decay);
    optimizer.at("clip_norm").get_to(state.optimizer.clip_norm);
    json.at("config_toml").get_to(state.config_toml);
    json.at("matmul_choices").get_to(state.matmul_choices);
    json.at("extra").get_to(state.extra);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "{}: not a run's state: {}", path, error.what());
  }
  return state;
}

}  // namespace belay
