#pragma once
// Checked access to the fields of a tokenizer.json; every complaint names the file.

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "belay/base/error.h"

namespace belay::data {

class JsonFields {
 public:
  using array = simdjson::dom::array;
  using element = simdjson::dom::element;
  using object = simdjson::dom::object;

  explicit JsonFields(std::string origin) : origin_(std::move(origin)) {}
  [[nodiscard]] const std::string& origin() const { return origin_; }

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::data, "{}: {}", origin_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Absent and null mean the same throughout this format.
  static std::optional<element> find(const object& from, std::string_view key) {
    element value;
    if (from.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  element need(const object& from, std::string_view key, std::string_view where) const {
    const auto value = find(from, key);
    if (!value) bad("{} lacks {:?}", where, key);
    return *value;
  }
  object as_object(const element& value, std::string_view what) const {
    object result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be an object", what);
    return result;
  }
  array as_array(const element& value, std::string_view what) const {
    array result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be a list", what);
    return result;
  }
  std::string_view as_text(const element& value, std::string_view what) const {
    std::string_view result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be a string", what);
    return result;
  }
  std::int64_t as_integer(const element& value, std::string_view what) const {
    std::int64_t result = 0;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be an integer", what);
    return result;
  }
  bool flag(const object& from, std::string_view key, bool otherwise) const {
    const auto value = find(from, key);
    if (!value) return otherwise;
    bool result = false;
    if (value->get(result) != simdjson::SUCCESS) bad("{:?} must be true or false", key);
    return result;
  }
  std::string text_or_empty(const object& from, std::string_view key) const {
    const auto value = find(from, key);
    return value ? std::string(as_text(*value, key)) : std::string();
  }

 private:
  std::string origin_;
};

}  // namespace belay::data
