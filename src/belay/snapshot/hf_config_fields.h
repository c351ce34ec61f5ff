#pragma once
// Typed access to the keys of one JSON object, for hf_config.cc: every mistake names the file, the
// key and the value, and keys that nobody asked for can be listed.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

class ConfigFields {
 public:
  // `prefix` is put before key names in messages ("rope_scaling.").
  ConfigFields(const nlohmann::json& object, std::string path, std::string prefix = "");

  // True for null too.
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  // Nothing when the key is absent or null.
  const nlohmann::json* get(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t limit);
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t limit);
  std::optional<double> optional_number(std::string_view key);
  double number(std::string_view key, double fallback);
  double required_number(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);

  // Refuses a key whose value is neither absent, null nor `neutral`.
  void only(std::string_view key, const nlohmann::json& neutral);
  // Marks keys as known and without influence.
  void ignore(std::initializer_list<std::string_view> keys);
  [[nodiscard]] std::vector<std::string> unasked() const;

  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace belay
