#include "belay/data/store_meta.h"

#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/data/store_format.h"

namespace belay::data {
namespace {

constexpr const char* kFormat = "belay-tokens";

std::int64_t number(const nlohmann::ordered_json& json, const char* key, std::int64_t lowest,
                    const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer() || found->get<std::int64_t>() < lowest) {
    fail(ExitCode::data, "{}: \"{}\" must be an integer of at least {}", path, key, lowest);
  }
  return found->get<std::int64_t>();
}

}  // namespace

std::string encode_meta(const StoreMeta& meta) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kStoreVersion;
  json["documents"] = meta.documents;
  json["tokens"] = meta.tokens;
  json["vocab_size"] = meta.vocab_size;
  json["max_id"] = meta.max_id;
  json["end_of_document"] = meta.end_of_document;
  json["append_eod"] = meta.append_eod;
  json["pad_id"] = meta.pad_id;
  json["row_len"] = meta.row_len;
  json["rows"] = meta.rows;
  json["packing"] = meta.packing;
  json["tokenizer"] = meta.tokenizer;
  nlohmann::ordered_json counters = nlohmann::ordered_json::object();
  for (const auto& [name, value] : meta.counters) counters[name] = value;
  json["counters"] = counters;
  return json.dump(2) + "\n";
}

StoreMeta parse_meta(const std::string& text, const std::string& path) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(ExitCode::data, "{}: not JSON", path);
  if (const auto format = json.find("format"); format == json.end() || *format != kFormat) {
    fail(ExitCode::data, "{}: \"format\" is not \"{}\"", path, kFormat);
  }
  if (const std::int64_t version = number(json, "version", 0, path); version != kStoreVersion) {
    fail(ExitCode::data, "{}: store version {}, this program reads version {}; pack again", path,
         version, kStoreVersion);
  }
  StoreMeta meta;
  meta.documents = number(json, "documents", 0, path);
  meta.tokens = number(json, "tokens", 0, path);
  meta.vocab_size = number(json, "vocab_size", 0, path);
  meta.max_id = number(json, "max_id", 0, path);
  meta.end_of_document = number(json, "end_of_document", -1, path);
  meta.pad_id = number(json, "pad_id", 0, path);
  meta.row_len = number(json, "row_len", 0, path);
  meta.rows = number(json, "rows", 0, path);
  const auto eod = json.find("append_eod");
  meta.append_eod = eod != json.end() && eod->is_boolean() && eod->get<bool>();
  if (const auto packing = json.find("packing"); packing != json.end() && packing->is_string()) {
    meta.packing = packing->get<std::string>();
  }
  const auto tokenizer = json.find("tokenizer");
  if (tokenizer == json.end() || !tokenizer->is_string() ||
      tokenizer->get<std::string>().find('/') != std::string::npos) {
    fail(ExitCode::data, "{}: \"tokenizer\" must be a file name inside the store", path);
  }
  meta.tokenizer = tokenizer->get<std::string>();
  if (const auto counters = json.find("counters");
      counters != json.end() && counters->is_object()) {
    for (const auto& [name, value] : counters->items()) {
      if (value.is_number_integer()) meta.counters.emplace_back(name, value.get<std::int64_t>());
    }
  }
  return meta;
}

}  // namespace belay::data
