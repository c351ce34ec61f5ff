#include "belay/train/resume.h"

#include <charconv>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/plan/plan.h"
#include "belay/train/settings_check.h"

namespace belay {
namespace {

std::string extra_text(std::int64_t value) {
  return std::to_string(value);
}

std::int64_t extra_number(const SnapshotState& state, const std::string& key) {
  const auto entry = state.extra.find(key);
  if (entry == state.extra.end()) return 0;
  std::int64_t value = 0;
  const std::string& text = entry->second;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    fail(ExitCode::data, "the snapshot's state has {} = '{}', which is not a number", key, text);
  }
  return value;
}

template <class T>
void must_equal(std::string_view key, const T& stored, const T& present) {
  if (stored == present) return;
  fail(ExitCode::usage,
       "{} was {} when the snapshot was taken and is {} now; go on with the old value, or start a "
       "new run (another --out)",
       key, stored, present);
}

std::string describe(const ScheduleConfig& s) {
  return fmt::format("{} lr {} min_lr {} warmup_steps {} decay_steps {} over {} steps",
                     name_of(s.kind), s.lr, s.min_lr, s.warmup_steps, s.decay_steps, s.total_steps);
}

std::string describe(const OptimizerSettings& s) {
  return fmt::format("betas [{}, {}] eps {} weight_decay {} clip_norm {}", s.beta1, s.beta2, s.eps,
                     s.weight_decay, s.clip_norm);
}

// What decides results in 16 bits.
std::string describe(const ArithmeticConfig& config) {
  const Protection& protect = config.protection;
  return fmt::format(
      "overflow = {}, norm_eps_floor = {}, protect_norms = {}, protect_softmax = {}, "
      "protect_reductions = {}",
      config.overflow == Overflow::saturate ? "saturate" : "inf", config.norm_eps_floor,
      protect.norms, protect.softmax, protect.reductions);
}

std::string describe(const comm::CommConfig& config) {
  if (config.compression == comm::Compression::none) return "none";
  return fmt::format("{}{}{}", name_of(config.compression),
                     takes_top_k(config.compression) ? fmt::format(" {}", config.topk_ratio) : "",
                     config.compression_level == comm::CompressionLevel::slow ? " slow" : "");
}

// What steers the loss scale, a setting a line; keep it so that two of them can be compared by key.
std::string describe(const PrecisionConfig& config) {
  std::string text = "[precision]\n";
  for (const config::Field& field : PrecisionConfig::fields()) {
    const std::string_view key = field.name;
    if (key == "record_norms" || key == "preset") continue;  // the first scale has the preset
    const bool scaled = config.loss_scale != LossScaleMode::none;
    if (!scaled && key != "loss_scale") continue;
    text += fmt::format("{} = {}\n", key, config::to_text(field.read(&config, field)));
  }
  return text;
}

OptimizerSettings optimizer_settings(const OptimizerConfig& config) {
  return {config.betas[0], config.betas[1], config.eps, config.weight_decay, config.clip_norm};
}

std::string quoted(const std::string& text) {
  return text.empty() ? "\"\"" : text;
}

// A changed curve or optimizer needs the user's word.
template <class T>
void compare_curve(std::string_view what, const T& stored, const T& present, bool allowed) {
  if (stored == present) return;
  if (!allowed) {
    fail(ExitCode::usage,
         "the {} differs from the snapshot's.\n  snapshot: {}\n  now:      {}\nGive the new values "
         "with --set optimizer.KEY=VALUE or --set train.steps=N to use them from the first "
         "resumed step on, or restore the old ones",
         what, describe(stored), describe(present));
  }
  log::info("the {} changes with this resume.\n  before: {}\n  now:    {}", what, describe(stored),
            describe(present));
}

}  // namespace

SnapshotState snapshot_state(const RunSetup& setup, const Progress& progress) {
  const RunConfig& config = setup.config;
  SnapshotState state;
  state.step = progress.step;
  state.tokens = progress.tokens;
  state.data_seed = config.train.seed;
  state.data_epoch = progress.position / setup.train.samples();
  state.data_sample = progress.position % setup.train.samples();
  state.random_seed = config.train.seed;
  state.dtype = name_of(config.train.dtype);
  state.schedule = config.optimizer.schedule_of(config.train.steps);
  state.optimizer = optimizer_settings(config.optimizer);
  state.config_toml = to_toml(effective_config(setup));
  state.matmul_choices = choices_to_json(setup.device->matmul_choices());
  state.extra = {
      {"updates", extra_text(progress.updates)},
      {"samples_per_epoch", extra_text(setup.train.samples())},
      {"seq_len", extra_text(setup.seq_len)},
      {"global_batch", extra_text(config.train.global_batch)},
      {"micro_batch", extra_text(config.train.micro_batch)},
      {"head_block_rows", extra_text(config.train.head_block_rows)},
      {"threads", extra_text(thread_count())},
      {"device", config.train.device},
      {"ranks", extra_text(setup.ranks)},
      {"order_stable", fmt::format("{}", config.comm.order_stable)},
      {"z_loss", fmt::format("{}", config.optimizer.z_loss)},
      {"dropout", fmt::format("{}", config.model.dropout)},
      {"isolate_documents", fmt::format("{}", config.data.isolate_documents)},
      {"arithmetic", describe(config.arithmetic)},
      {"steps_without_labels", extra_text(progress.steps_without_labels)},
      {"steps_non_finite", extra_text(progress.steps_non_finite)},
      {"loss_scale", progress.loss_scale_state},
      {"compression", describe(config.comm)},
      {"compression_warmup", extra_text(config.comm.compression_warmup)},
      {"measured_compression", progress.measured_compression},
      {"precision", describe(resolved(config.precision, config.train.dtype))},
      {"zero", extra_text(config.parallel.zero)},
      {"pipeline_depth", extra_text(config.comm.pipeline_depth)},
      {"chooser", std::string(name_of(config.comm.chooser))},
      {"force", config.comm.force},
      {"clip_power_of_two", fmt::format("{}", config.optimizer.clip_power_of_two)},
  };
  return state;
}

SnapshotSource snapshot_source(Program& program) {
  const auto reader = [&program](auto part) {
    return [&program, part](int index, std::span<float> dst) {
      ParameterStore::read(program.lane(), (program.parameters().*part)(index), dst);
    };
  };
  return {reader(&ParameterStore::master), reader(&ParameterStore::m), reader(&ParameterStore::v)};
}

SnapshotState check_resume(const std::string& dir, const RunSetup& setup,
                           const ResumeOptions& options) {
  SnapshotState state = load_snapshot_state(dir);
  const RunConfig& config = setup.config;
  must_equal("train.seed", state.data_seed, config.train.seed);
  must_equal("train.dtype", state.dtype, std::string(name_of(config.train.dtype)));
  must_equal("the row length", extra_number(state, "seq_len"), setup.seq_len);
  must_equal("the number of samples in data.train", extra_number(state, "samples_per_epoch"),
             setup.train.samples());
  must_equal("train.global_batch", extra_number(state, "global_batch"), config.train.global_batch);
  const auto text_of = [&](const std::string& key) {
    const auto entry = state.extra.find(key);
    return entry == state.extra.end() ? std::string() : entry->second;
  };
  must_equal("optimizer.z_loss", text_of("z_loss"), fmt::format("{}", config.optimizer.z_loss));
  if (state.extra.contains("clip_power_of_two")) {
    must_equal("optimizer.clip_power_of_two", text_of("clip_power_of_two"),
               fmt::format("{}", config.optimizer.clip_power_of_two));
  }
  must_equal("model.dropout", text_of("dropout"), fmt::format("{}", config.model.dropout));
  must_equal("data.isolate_documents", text_of("isolate_documents"),
             fmt::format("{}", config.data.isolate_documents));
  if (config.train.dtype != DType::f32) {
    must_equal("[precision]", text_of("arithmetic"), describe(config.arithmetic));
  }
  const std::string steering = describe(resolved(config.precision, config.train.dtype));
  if (state.extra.contains("precision") && text_of("precision") != steering) {
    log::warn("loss scaling is not what it was (there: in the snapshot): {}",
              difference_of_settings(steering, text_of("precision")));
  }
  // These change rounding only.
  std::vector<std::pair<const char*, std::string>> roundings = {
      {"micro_batch", extra_text(config.train.micro_batch)},
      {"head_block_rows", extra_text(config.train.head_block_rows)},
      {"device", config.train.device},
      {"order_stable", fmt::format("{}", config.comm.order_stable)},
      {"compression", describe(config.comm)}};
  if (config.comm.compression != comm::Compression::none) {
    roundings.emplace_back("compression_warmup", extra_text(config.comm.compression_warmup));
  }
  if (!config.comm.order_stable) {
    roundings.emplace_back("ranks", extra_text(setup.ranks));
    // Which sums are made, and in what order.
    if (setup.ranks > 1) {
      roundings.emplace_back("zero", extra_text(config.parallel.zero));
      roundings.emplace_back("pipeline_depth", extra_text(config.comm.pipeline_depth));
      roundings.emplace_back("chooser", std::string(name_of(config.comm.chooser)));
      roundings.emplace_back("force", config.comm.force);
    }
  }
  // The engine's own products do not depend on threads, and ranks share processors.
  if (config.machine.matmul != "belay") {
    roundings.emplace_back("threads", extra_text(thread_count()));
  }
  for (const auto& [key, present] : roundings) {
    if (!state.extra.contains(key) || text_of(key) == present) continue;
    log::warn("{} was {} and is {} now: the run continues, but not bit for bit", key,
              quoted(text_of(key)), quoted(present));
  }
  // Two summands have one order.
  if (config.comm.chooser == comm::ChooserKind::model && !config.comm.order_stable &&
      setup.ranks > 2) {
    log::warn(
        "comm.chooser = \"model\" measures the links anew and may choose other algorithms: then "
        "the "
        "run continues, but not bit for bit; comm.order_stable = true does not depend on them");
  }
  compare_curve("learning-rate schedule", state.schedule,
                config.optimizer.schedule_of(config.train.steps), options.allow_new_optimizer);
  compare_curve("optimizer", state.optimizer, optimizer_settings(config.optimizer),
                options.allow_new_optimizer);
  return state;
}

Progress progress_of(const SnapshotState& state, const RunSetup& setup) {
  Progress progress;
  progress.step = state.step;
  progress.updates = extra_number(state, "updates");
  progress.tokens = state.tokens;
  progress.position = state.data_epoch * setup.train.samples() + state.data_sample;
  progress.steps_without_labels = extra_number(state, "steps_without_labels");
  progress.steps_non_finite = extra_number(state, "steps_non_finite");
  const auto scale = state.extra.find("loss_scale");
  if (scale != state.extra.end()) progress.loss_scale_state = scale->second;
  // What was measured under other settings says nothing of these.
  const auto measured = state.extra.find("measured_compression");
  const auto how = state.extra.find("compression");
  if (measured != state.extra.end() && how != state.extra.end() &&
      how->second == describe(setup.config.comm)) {
    progress.measured_compression = measured->second;
  }
  return progress;
}

void load_into(const std::string& dir, const RunSetup& setup, Program& program) {
  const ParameterStore& store = program.parameters();
  const auto writer = [&](ParameterStore::State state) {
    return [&program, &store, state](int index, std::span<const float> src) {
      store.load(program.lane(), state, index, src);
    };
  };
  load_snapshot(dir, program_config(setup).model, setup.table,
                {writer(ParameterStore::State::masters), writer(ParameterStore::State::m),
                 writer(ParameterStore::State::v)});
  store.refresh_copies(program.lane());
}

}  // namespace belay
