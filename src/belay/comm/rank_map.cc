#include "belay/comm/rank_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay::comm {
namespace {

constexpr std::string_view kHeading = "rank_id,npu_id,hccs_domain";
constexpr int kMostRanks = 1 << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Three whole numbers from 0 on.
std::optional<std::array<int, 3>> parse_line(std::string_view line) {
  std::array<int, 3> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == values.size())) return std::nullopt;
    const std::string_view field = trimmed(line.substr(0, comma));
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), values[i]);
    if (error != std::errc() || end != field.data() + field.size() || field.empty() ||
        values[i] < 0) {
      return std::nullopt;
    }
    if (comma != std::string_view::npos) line = line.substr(comma + 1);
  }
  return values;
}

struct Tear {
  int domain = 0;
  int before = 0;  // the last rank of the domain before the gap
  int behind = 0;  // the first one behind it
};

std::optional<Tear> find_tear(const RankMap& map) {
  std::map<int, int> last_rank;  // of each domain so far
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const int domain = map.entries[static_cast<std::size_t>(rank)].domain;
    const auto [found, added] = last_rank.try_emplace(domain, rank);
    if (!added && found->second != rank - 1) return Tear{domain, found->second, rank};
    found->second = rank;
  }
  return std::nullopt;
}

void check_domains(const RankMap& map, std::string_view source) {
  const auto tear = find_tear(map);
  if (!tear) return;
  fail(ExitCode::data,
       "{}: domain {} is torn apart: rank {} belongs to it, rank {} does not, rank {} does "
       "again; every ring would cross slow links more often than it must. Use this map:\n{}",
       source, tear->domain, tear->before, tear->before + 1, tear->behind, corrected(map).to_csv());
}

}  // namespace

Layout RankMap::layout() const {
  Layout layout;
  for (const RankMapEntry& entry : entries) layout.domain_of.push_back(entry.domain);
  return layout;
}

std::string RankMap::to_csv() const {
  std::string text = fmt::format("{}\n", kHeading);
  for (int rank = 0; rank < ranks(); ++rank) {
    const RankMapEntry& entry = entries[static_cast<std::size_t>(rank)];
    fmt::format_to(std::back_inserter(text), "{},{},{}\n", rank, entry.npu, entry.domain);
  }
  return text;
}

bool tears_a_domain(const RankMap& map) {
  return find_tear(map).has_value();
}

RankMap corrected(const RankMap& map) {
  std::map<int, int> order;
  for (const RankMapEntry& entry : map.entries) {
    order.try_emplace(entry.domain, static_cast<int>(order.size()));
  }
  RankMap result = map;
  std::stable_sort(result.entries.begin(), result.entries.end(),
                   [&](const RankMapEntry& a, const RankMapEntry& b) {
                     return std::pair(order[a.domain], a.npu) < std::pair(order[b.domain], b.npu);
                   });
  return result;
}

RankMap parse_rank_map(std::string_view text, std::string_view source) {
  std::map<int, RankMapEntry> by_rank;
  std::set<std::pair<int, int>> devices;
  bool heading = false;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    if (line.empty()) continue;
    if (!heading) {
      if (line != kHeading) {
        fail(ExitCode::data, "{}: line {}: the heading must be {}, not '{}'", source, number,
             kHeading, line);
      }
      heading = true;
      continue;
    }
    const auto values = parse_line(line);
    if (!values || (*values)[0] >= kMostRanks) {
      fail(ExitCode::data, "{}: line {}: '{}' is not a rank, a device and a domain", source, number,
           line);
    }
    const auto [rank, npu, domain] = *values;
    if (!by_rank.try_emplace(rank, RankMapEntry{npu, domain}).second) {
      fail(ExitCode::data, "{}: line {}: rank {} is there twice", source, number, rank);
    }
    if (!devices.emplace(domain, npu).second) {
      fail(ExitCode::data, "{}: line {}: device {} of domain {} has two ranks", source, number, npu,
           domain);
    }
  }
  if (by_rank.empty()) fail(ExitCode::data, "{}: there are no ranks in it", source);
  RankMap map;
  for (const auto& [rank, entry] : by_rank) {
    if (rank != map.ranks()) {
      fail(ExitCode::data, "{}: rank {} is missing; ranks count from 0 without gaps", source,
           map.ranks());
    }
    map.entries.push_back(entry);
  }
  check_domains(map, source);
  return map;
}

RankMap read_rank_map(const std::string& path) {
  return parse_rank_map(read_file(path), path);
}

}  // namespace belay::comm
