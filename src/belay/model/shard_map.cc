#include "belay/model/shard_map.h"

#include <algorithm>

namespace belay {
namespace {

// Small enough that shares are even, large enough that an operator over one pays.
constexpr std::int64_t kLargestPiece = std::int64_t{1} << 16;
constexpr std::int64_t kPiecesWanted = 1024;
constexpr std::int64_t kAlignment = 32;  // elements: blocks begin where vectors may

std::int64_t piece_size(const ParameterTable& table) {
  const std::int64_t even = table.parameter_count() / kPiecesWanted;
  const std::int64_t aligned = (even + kAlignment - 1) / kAlignment * kAlignment;
  return std::clamp(aligned, kAlignment, kLargestPiece);
}

// Where the flat state goes on behind a parameter.
std::int64_t end_of(const ParameterTable& table, int parameter) {
  return parameter + 1 < table.size() ? table[parameter + 1].offset : table.flat_elements();
}

}  // namespace

ShardMap::ShardMap(const ParameterTable& table, const ShardOptions& options)
    : options_(options), piece_elements_(piece_size(table)) {
  BELAY_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks);
  first_piece_.push_back(0);
  for (const Parameter& parameter : table.all()) {
    const std::int64_t pieces = (parameter.elements() + piece_elements_ - 1) / piece_elements_;
    first_piece_.push_back(first_piece_.back() + pieces);
  }
  for (int first = 0; first < table.size();) {
    int last = first + 1;
    while (last < table.size() && table[last].layer == table[first].layer) ++last;
    cut_unit(table, first, last, end_of(table, last - 1));
    first = last;
  }
}

// Parameters [first, last) into as few groups as may be, of about the same size.
void ShardMap::cut_unit(const ParameterTable& table, int first, int last, std::int64_t end) {
  const auto unit = static_cast<int>(units_.size());
  const std::int64_t begin = table[first].offset;
  units_.push_back({table[first].layer, begin, end, static_cast<int>(groups_.size()), 0});
  std::int64_t parts = 1;
  if (options_.group_elements > 0) {
    parts = (end - begin + options_.group_elements - 1) / options_.group_elements;
  }
  std::vector<std::int64_t> ends = {begin};  // of the pieces of a group, and where it begins
  std::int64_t part = 1;
  for (int index = first; index < last; ++index) {
    const std::int64_t stop = end_of(table, index);
    const std::int64_t pieces = first_piece(index + 1) - first_piece(index);
    for (std::int64_t i = 1; i <= pieces; ++i) {
      const std::int64_t at = i == pieces ? stop : table[index].offset + i * piece_elements_;
      ends.push_back(at);
      if ((at - begin) * parts < part * (end - begin)) continue;
      add_group(table, unit, ends);
      ends = {at};
      while ((at - begin) * parts >= part * (end - begin)) ++part;
    }
  }
  units_.back().last_group = static_cast<int>(groups_.size());
}

void ShardMap::add_group(const ParameterTable& table, int unit,
                         std::span<const std::int64_t> ends) {
  ShardGroup group;
  group.unit = unit;
  group.begin = ends.front();
  group.end = ends.back();
  group.bounds.push_back(0);
  for (int rank = 1; rank <= options_.ranks; ++rank) {
    // The end of a piece nearest to an even share.
    const std::int64_t even = group.begin + group.elements() * rank / options_.ranks;
    const auto above = std::lower_bound(ends.begin(), ends.end(), even);
    const auto below = above == ends.begin() ? above : above - 1;
    const std::int64_t nearest = *above - even < even - *below ? *above : *below;
    group.bounds.push_back(rank == options_.ranks ? group.elements() : nearest - group.begin);
  }
  const auto rank = static_cast<std::size_t>(options_.rank);
  group.own_begin = group.begin + group.bounds[rank];
  group.own_end = group.begin + group.bounds[rank + 1];
  group.shard = shard_elements_;
  shard_elements_ += group.own_elements();
  add_runs(table, group);
  groups_.push_back(std::move(group));
}

void ShardMap::add_runs(const ParameterTable& table, ShardGroup& group) {
  group.first_run = static_cast<int>(runs_.size());
  for (int index = 0; index < table.size(); ++index) {
    const Parameter& parameter = table[index];
    const std::int64_t begin = std::max(group.own_begin, parameter.offset);
    const std::int64_t end = std::min(group.own_end, parameter.offset + parameter.elements());
    if (begin >= end) continue;
    const std::int64_t within = begin - parameter.offset;
    runs_.push_back({index, within, end - begin, begin, group.shard + begin - group.own_begin,
                     first_piece(index) + within / piece_elements_});
  }
  group.last_run = static_cast<int>(runs_.size());
}

std::span<const ShardRun> ShardMap::runs_of(const ShardGroup& group) const {
  return std::span(runs_).subspan(static_cast<std::size_t>(group.first_run),
                                  static_cast<std::size_t>(group.last_run - group.first_run));
}

std::span<const ShardRun> ShardMap::runs_of_parameter(int parameter) const {
  const auto [first, last] = std::equal_range(
      runs_.begin(), runs_.end(), ShardRun{.parameter = parameter},
      [](const ShardRun& a, const ShardRun& b) { return a.parameter < b.parameter; });
  return {first, last};
}

std::int64_t ShardMap::largest_group() const {
  std::int64_t largest = 0;
  for (const ShardGroup& group : groups_) largest = std::max(largest, group.elements());
  return largest;
}

std::int64_t ShardMap::largest_block() const {
  std::int64_t largest = 0;
  for (const ShardGroup& group : groups_) {
    for (std::size_t rank = 1; rank < group.bounds.size(); ++rank) {
      largest = std::max(largest, group.bounds[rank] - group.bounds[rank - 1]);
    }
  }
  return largest;
}

std::pair<int, int> ShardMap::groups_of(const ParameterTable& table, int parameter) const {
  const std::int64_t begin = table[parameter].offset;
  const std::int64_t end = begin + table[parameter].elements();
  const auto first = std::partition_point(groups_.begin(), groups_.end(),
                                          [&](const ShardGroup& g) { return g.end <= begin; });
  const auto last = std::partition_point(first, groups_.end(),
                                         [&](const ShardGroup& g) { return g.begin < end; });
  return {static_cast<int>(first - groups_.begin()), static_cast<int>(last - groups_.begin())};
}

}  // namespace belay
