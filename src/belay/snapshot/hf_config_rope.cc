#include "belay/snapshot/hf_config_rope.h"

#include <fmt/ranges.h>

#include "belay/base/log.h"

namespace belay {
namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1} << 31;
constexpr double kDefaultTheta = 10000.0;

double positive(ConfigFields& fields, std::string_view key, double value) {
  if (!(value > 0)) fields.refuse(key, "a number above 0 is expected");
  return value;
}

double required_positive(ConfigFields& fields, std::string_view key) {
  return positive(fields, key, fields.required_number(key));
}

void read_yarn(ConfigFields& fields, RopeConfig& rope) {
  rope.scaling = RopeScaling::yarn;
  rope.factor = required_positive(fields, "factor");
  rope.beta_fast = positive(fields, "beta_fast", fields.number("beta_fast", 32.0));
  rope.beta_slow = positive(fields, "beta_slow", fields.number("beta_slow", 1.0));
  if (const std::optional<double> factor = fields.optional_number("attention_factor")) {
    rope.attention_factor = positive(fields, "attention_factor", *factor);
  }
  rope.original_seq_len = fields.integer("original_max_position_embeddings", 0, kMaxLength);
  fields.only("truncate", true);
  fields.only("mscale", nullptr);
  fields.only("mscale_all_dim", nullptr);
}

void read_llama3(ConfigFields& fields, RopeConfig& rope) {
  rope.scaling = RopeScaling::llama3;
  rope.factor = required_positive(fields, "factor");
  rope.low_freq_factor = required_positive(fields, "low_freq_factor");
  rope.high_freq_factor = required_positive(fields, "high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    fields.refuse("high_freq_factor",
                  fmt::format("it must be above low_freq_factor {}", rope.low_freq_factor));
  }
  const auto original = fields.optional_integer("original_max_position_embeddings", kMaxLength);
  if (!original) fields.refuse("original_max_position_embeddings", "llama3 scaling needs it");
  rope.original_seq_len = *original;
}

void read_scaling(ConfigFields& fields, RopeConfig& rope) {
  const std::string old_type = fields.text("type", "default");
  const std::string type = fields.text("rope_type", old_type);
  if (fields.get("type") != nullptr && old_type != type) {
    fields.refuse("type", fmt::format("rope_type says {}", type));
  }
  if (type == "linear" || type == "dynamic") {
    rope.scaling = type == "linear" ? RopeScaling::linear : RopeScaling::dynamic;
    rope.factor = required_positive(fields, "factor");
    if (type == "dynamic") {
      // Where it is absent, as in most files, max_position_embeddings counts.
      rope.original_seq_len = fields.integer("original_max_position_embeddings", 0, kMaxLength);
    } else {
      fields.ignore({"original_max_position_embeddings"});
    }
  } else if (type == "yarn") {
    read_yarn(fields, rope);
  } else if (type == "llama3") {
    read_llama3(fields, rope);
  } else if (type != "default") {
    const std::string_view key = fields.get("rope_type") != nullptr ? "rope_type" : "type";
    fields.refuse(key, "the types are default, linear, dynamic, yarn and llama3");
  }
  fields.only("partial_rotary_factor", 1);
  fields.ignore({"finetuned"});
  if (const std::vector<std::string> unknown = fields.unasked(); !unknown.empty()) {
    log::warn("{}: not known and ignored: {}", fields.path(), fmt::join(unknown, ", "));
  }
}

}  // namespace

RopeConfig read_rope(ConfigFields& fields, std::int64_t seq_len) {
  RopeConfig rope;
  const std::optional<double> top_theta = fields.optional_number("rope_theta");
  if (top_theta) positive(fields, "rope_theta", *top_theta);
  rope.theta = top_theta.value_or(kDefaultTheta);
  fields.only("partial_rotary_factor", 1);
  fields.only("rope_interleaved", false);
  fields.ignore({"original_max_position_embeddings"});

  const nlohmann::json* old_keys = fields.get("rope_scaling");
  const nlohmann::json* new_keys = fields.get("rope_parameters");
  for (const auto& [key, value] :
       {std::pair("rope_scaling", old_keys), std::pair("rope_parameters", new_keys)}) {
    if (value != nullptr && !value->is_object()) fields.refuse(key, "an object is expected");
  }
  if (old_keys != nullptr) {
    ConfigFields scaling(*old_keys, fields.path(), "rope_scaling.");
    scaling.ignore({"rope_theta"});
    read_scaling(scaling, rope);
  }
  if (new_keys != nullptr) {
    ConfigFields parameters(*new_keys, fields.path(), "rope_parameters.");
    RopeConfig second;
    second.theta = positive(parameters, "rope_theta", parameters.number("rope_theta", rope.theta));
    read_scaling(parameters, second);
    if (top_theta && second.theta != *top_theta) {
      fields.refuse("rope_theta", fmt::format("rope_parameters says {}", second.theta));
    }
    if (old_keys != nullptr && (second.scaling != rope.scaling || second.factor != rope.factor)) {
      fields.refuse("rope_scaling", "rope_parameters says something else");
    }
    rope = second;
  }
  if (rope.original_seq_len > 0 && rope.scaling == RopeScaling::yarn &&
      rope.original_seq_len > seq_len) {
    log::warn("{}: original_max_position_embeddings {} is above max_position_embeddings {}",
              fields.path(), rope.original_seq_len, seq_len);
  }
  return rope;
}

}  // namespace belay
