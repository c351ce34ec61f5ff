#include "belay/data/jsonl.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>

#include "belay/data/utf8.h"

namespace belay::data {
namespace {

static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  if (is_valid_utf8(text)) return std::string_view::npos;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t length = valid_character_length(text, position);
    if (length == 0) return position;
    position += length;
  }
  return std::string_view::npos;
}

struct JsonlParser::State {
  simdjson::dom::parser parser;
  std::string text;  // of lines that only the second parser can read

  bool parse_slowly(std::string_view line, std::string_view key, std::string_view& result,
                    JsonlError& error);
};

JsonlParser::JsonlParser() : state_(std::make_unique<State>()) {}
JsonlParser::~JsonlParser() = default;

bool JsonlParser::parse(std::string_view line, std::string_view key, std::string_view& text,
                        JsonlError& error) {
  simdjson::dom::element root;
  if (state_->parser.parse(line.data(), line.size(), false).get(root) != simdjson::SUCCESS) {
    return state_->parse_slowly(line, key, text, error);
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    error = {"is not a JSON object", 0};
    return false;
  }
  simdjson::dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS) {
    error = {fmt::format("has no key \"{}\"; name the right one with --text-key", key)};
    return false;
  }
  if (value.get(text) != simdjson::SUCCESS) {
    error = {fmt::format("holds something other than a string under \"{}\"", key)};
    return false;
  }
  return true;
}

// simdjson tells little about an error and refuses integers beyond 64 bits, which JSON allows. This
// second parser has the last word.
bool JsonlParser::State::parse_slowly(std::string_view line, std::string_view key,
                                      std::string_view& result, JsonlError& error) {
  if (const std::size_t bad = find_invalid_utf8(line); bad != std::string_view::npos) {
    error = {"is not UTF-8", static_cast<std::int64_t>(bad)};
    return false;
  }
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& failure) {
    // The library counts from 1 and points one past the end when input is missing.
    const auto offset = static_cast<std::int64_t>(failure.byte) - 1;
    const std::string_view what = failure.what();
    if (what.find("; expected end of input") != std::string_view::npos) {
      error = {"has extra data after the JSON value", offset};
    } else if (offset >= std::ssize(line)) {
      error = {"ends inside the JSON value", std::ssize(line)};
    } else {
      error = {"is not JSON", offset};
    }
    return false;
  } catch (const nlohmann::json::exception& failure) {
    error = {fmt::format("is not JSON: {}", failure.what()), -1};
    return false;
  }
  if (!root.is_object()) {
    error = {"is not a JSON object", 0};
    return false;
  }
  const auto found = root.find(key);
  if (found == root.end()) {
    error = {fmt::format("has no key \"{}\"; name the right one with --text-key", key), -1};
    return false;
  }
  if (!found->is_string()) {
    error = {fmt::format("holds something other than a string under \"{}\"", key), -1};
    return false;
  }
  text = found->get<std::string>();
  result = text;
  return true;
}

}  // namespace belay::data
