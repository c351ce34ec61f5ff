#include "belay/snapshot/hf_config_fields.h"

#include <cmath>
#include <utility>

#include "belay/base/error.h"

namespace belay {

ConfigFields::ConfigFields(const nlohmann::json& object, std::string path, std::string prefix)
    : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

const nlohmann::json* ConfigFields::get(std::string_view key) {
  asked_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigFields::refuse(std::string_view key, std::string_view what) const {
  const auto found = object_.find(key);
  std::string value = found == object_.end()
                          ? "absent"
                          : found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (value.size() > 80) value = value.substr(0, 77) + "...";
  fail(ExitCode::data, "{}: {}{} is {}; {}", path_, prefix_, key, value, what);
}

std::optional<std::int64_t> ConfigFields::optional_integer(std::string_view key,
                                                           std::int64_t limit) {
  const nlohmann::json* value = get(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse(key, "a whole number is expected");
  // Unsigned numbers above the signed range would wrap; compare before converting.
  if (value->is_number_unsigned() &&
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(limit)) {
    refuse(key, fmt::format("at most {} is supported", limit));
  }
  const auto number = value->get<std::int64_t>();
  if (number < 1) refuse(key, "at least 1 is expected");
  return number;
}

std::int64_t ConfigFields::integer(std::string_view key, std::int64_t fallback,
                                   std::int64_t limit) {
  return optional_integer(key, limit).value_or(fallback);
}

std::optional<double> ConfigFields::optional_number(std::string_view key) {
  const nlohmann::json* value = get(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    refuse(key, "a finite number is expected");
  }
  return value->get<double>();
}

double ConfigFields::number(std::string_view key, double fallback) {
  return optional_number(key).value_or(fallback);
}

double ConfigFields::required_number(std::string_view key) {
  const std::optional<double> value = optional_number(key);
  if (!value) refuse(key, "a number is expected");
  return *value;
}

bool ConfigFields::boolean(std::string_view key, bool fallback) {
  const nlohmann::json* value = get(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, "true or false is expected");
  return value->get<bool>();
}

std::string ConfigFields::text(std::string_view key, std::string_view fallback) {
  const nlohmann::json* value = get(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) refuse(key, "a string is expected");
  return value->get<std::string>();
}

void ConfigFields::only(std::string_view key, const nlohmann::json& neutral) {
  const nlohmann::json* value = get(key);
  if (value == nullptr || *value == neutral) return;
  refuse(key, "this setting is not supported and would change what the model computes");
}

void ConfigFields::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) asked_.emplace(key);
}

std::vector<std::string> ConfigFields::unasked() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key) && !value.is_null()) result.push_back(prefix_ + key);
  }
  return result;
}

}  // namespace belay
