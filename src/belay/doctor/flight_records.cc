#include "belay/doctor/flight_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMostRanks = 1 << 20;

std::string call_in_words(const Json& json) {
  const std::string collective = json.at("collective");
  const std::int64_t count = json.at("count");
  if (json.at("algorithm") == "link test") return fmt::format("link test of {} bytes", count);
  if (collective == "barrier") {
    return count == 0 ? collective : fmt::format("allocation of {} bytes", count);
  }
  std::string text = collective + " (";
  const bool reduces =
      collective == "all_reduce" || collective == "reduce_scatter" || collective == "reduce";
  if (reduces) text += json.at("op").get<std::string>() + " of ";
  text += fmt::format("{} {}", count, json.at("dtype").get<std::string>());
  const std::int64_t root = json.at("root");
  if (root >= 0) text += fmt::format(", root {}", root);
  return text + ")";
}

std::string algorithm_in_words(const Json& json) {
  std::string text = json.at("algorithm");
  if (json.contains("inner")) {
    text += fmt::format(" {}/{}", json.at("inner").get<std::string>(),
                        json.at("outer").get<std::string>());
  }
  const auto segments = json.value("segments", std::int64_t{0});
  if (segments > 1) text += fmt::format(" x{}", segments);
  return text;
}

FlightCall call_of(const Json& json) {
  FlightCall call;
  call.sequence = json.at("sequence");
  call.epoch = json.at("epoch");
  call.call = call_in_words(json);
  if (call.epoch > 0) call.call += fmt::format(", epoch {}", call.epoch);
  const std::string state = json.at("state");
  if (state == "started") call.state = FlightCall::State::started;
  if (state == "done") call.state = FlightCall::State::done;
  if (state != "queued") call.algorithm = algorithm_in_words(json);
  call.queued_us = json.at("queued_us");
  call.started_us = json.at("started_us");
  call.done_us = json.at("done_us");
  call.waited_for = json.at("waited_for").get<std::vector<int>>();
  call.still_us = json.at("still_us");
  return call;
}

void read_head(const Json& json, FlightRecord& record) {
  if (json.at("belay_flight") != 1) fail(ExitCode::data, "it has another version");
  record.rank = json.at("rank");
  record.ranks = json.at("ranks");
  record.host = json.at("host");
  record.written_us = json.at("written_us");
  record.end = json.at("end");
  record.code = json.at("code");
  record.text = json.at("text");
  record.last_call = json.at("last_call");
  record.finished_call = json.at("finished_call");
  record.watched_us = json.at("watched_us");
  record.cpu_us = json.at("cpu_us");
  if (record.ranks < 1 || record.ranks > kMostRanks || record.rank < 0 ||
      record.rank >= record.ranks) {
    fail(ExitCode::data, "it says rank {} of {}", record.rank, record.ranks);
  }
}

void read_peers(const Json& json, FlightRecord& record) {
  for (const Json& peer : json) {
    record.peers.push_back(
        {peer.at("rank"), peer.at("state"), peer.at("entered"), peer.at("finished")});
  }
}

FlightRecord whole_record(const Json& json) {
  FlightRecord record;
  read_head(json, record);
  read_peers(json.at("peers"), record);
  for (const Json& call : json.at("calls")) record.calls.push_back(call_of(call));
  return record;
}

// The head, the peers and every call have a line each.
FlightRecord cut_record(std::string_view text) {
  FlightRecord record;
  record.cut = true;
  bool head = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    std::string line(text.substr(0, end));
    text.remove_prefix(end + 1);
    while (!line.empty() && (line.back() == ',' || line.back() == ' ')) line.pop_back();
    if (head) {
      read_head(Json::parse(line + "}"), record);
      head = false;
      continue;
    }
    if (line.starts_with("\"peers\"")) {
      read_peers(Json::parse("{" + line + "}").at("peers"), record);
    } else if (line.starts_with("{\"sequence\"")) {
      const Json call = Json::parse(line, nullptr, false);
      if (!call.is_discarded()) record.calls.push_back(call_of(call));
    }
  }
  if (head) fail(ExitCode::data, "nothing in it can be read");
  return record;
}

FlightRecord read_record(const std::string& path) {
  const std::string text = read_file(path);
  try {
    const Json json = Json::parse(text, nullptr, false);
    FlightRecord record = json.is_discarded() ? cut_record(text) : whole_record(json);
    std::sort(record.calls.begin(), record.calls.end(),
              [](const FlightCall& a, const FlightCall& b) { return a.sequence < b.sequence; });
    return record;
  } catch (const Json::exception&) {
    fail(ExitCode::data, "it is not a flight record");
  }
}

void take(const std::string& path, FlightRecords& all) {
  try {
    FlightRecord record = read_record(path);
    if (all.of(record.rank) != nullptr) {
      fail(ExitCode::data, "another file is the record of rank {} too", record.rank);
    }
    if (!all.records.empty() && record.ranks != all.ranks) {
      fail(ExitCode::data, "it is one of {} ranks, others are of {}", record.ranks, all.ranks);
    }
    all.ranks = record.ranks;
    all.records.push_back(std::move(record));
  } catch (const Error& error) {
    all.damaged.push_back({fs::path(path).filename().string(), error.what()});
  }
}

}  // namespace

const FlightRecord* FlightRecords::of(int rank) const {
  const auto found = std::find_if(records.begin(), records.end(),
                                  [rank](const FlightRecord& one) { return one.rank == rank; });
  return found == records.end() ? nullptr : &*found;
}

FlightRecords read_flight_records(const std::string& directory) {
  fs::path place(directory);
  if (fs::is_directory(place / "flight")) place /= "flight";
  if (!fs::is_directory(place)) {
    fail(ExitCode::data,
         "{} does not exist: give the directory of a run of several ranks that ended with an "
         "error, or its flight/",
         place.string());
  }
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(place)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  FlightRecords all;
  for (const std::string& path : paths) take(path, all);
  if (all.records.empty()) {
    fail(ExitCode::data,
         "{} has no flight record that can be read{}: they are written when ranks end with an "
         "error or at a signal; a run that ended in order leaves none",
         place.string(),
         all.damaged.empty() ? std::string()
                             : fmt::format(" ({}: {})", all.damaged[0].file, all.damaged[0].why));
  }
  std::sort(all.records.begin(), all.records.end(),
            [](const FlightRecord& a, const FlightRecord& b) { return a.rank < b.rank; });
  for (int rank = 0; rank < all.ranks; ++rank) {
    if (all.of(rank) == nullptr) all.missing.push_back(rank);
  }
  return all;
}

}  // namespace belay
