// A DesyncReport as text and as JSON.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "belay/doctor/desync_report.h"

namespace belay {

std::string report_text(const DesyncReport& report) {
  std::string text;
  const auto line = [&](std::string one) {
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  };
  if (report.differs) {
    line(fmt::format("{} ranks agree up to call #{}; the first difference is call #{}{}",
                     report.ranks, report.agreed, report.sequence,
                     report.call.empty() ? "" : ": " + report.call));
  } else {
    line(fmt::format("{} ranks: what is recorded of their calls agrees, up to #{}", report.ranks,
                     report.agreed));
  }
  for (const DesyncCulprit& culprit : report.culprits) {
    line(fmt::format("rank {} {}", culprit.rank, culprit.why));
  }
  if (report.culprits.empty()) line("no rank stands out");
  for (const std::string& remark : report.remarks) line(remark);
  for (const auto& damaged : report.damaged) {
    line(fmt::format("{} cannot be used: {}", damaged.file, damaged.why));
  }
  line(fmt::format("\n{:>5}  {:<6}  {:>9}  {:<28}  {}", "rank", "record", "last call", "ended by",
                   "in that call"));
  for (const DesyncRank& rank : report.by_rank) {
    line(fmt::format("{:>5}  {:<6}  {:>9}  {:<28}  {}", rank.rank, rank.record,
                     rank.last_call < 0 ? "?" : fmt::format("#{}", rank.last_call), rank.end,
                     rank.did));
  }
  return text;
}

std::string report_json(const DesyncReport& report) {
  using Json = nlohmann::ordered_json;
  Json culprits = Json::array();
  for (const DesyncCulprit& one : report.culprits) {
    culprits.push_back({{"rank", one.rank}, {"kind", name_of(one.kind)}, {"why", one.why}});
  }
  Json by_rank = Json::array();
  for (const DesyncRank& one : report.by_rank) {
    by_rank.push_back({{"rank", one.rank},
                       {"record", one.record},
                       {"last_call", one.last_call < 0 ? Json(nullptr) : Json(one.last_call)},
                       {"end", one.end},
                       {"did", one.did}});
  }
  Json damaged = Json::array();
  for (const auto& one : report.damaged) damaged.push_back({{"file", one.file}, {"why", one.why}});
  const Json json = {
      {"ranks", report.ranks}, {"differs", report.differs}, {"sequence", report.sequence},
      {"call", report.call},   {"agreed", report.agreed},   {"culprits", culprits},
      {"by_rank", by_rank},    {"remarks", report.remarks}, {"damaged", damaged}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace belay
