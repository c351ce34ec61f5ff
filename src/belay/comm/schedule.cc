#include "belay/comm/schedule.h"

#include <algorithm>

namespace belay::comm {

Blocks Blocks::even(std::int64_t begin, std::int64_t end, int blocks) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t total = end - begin;
  const std::int64_t unit = total >= 4 * kLine * blocks ? kLine : 1;
  const std::int64_t units = total / unit;
  Blocks result;
  result.bounds.reserve(static_cast<std::size_t>(blocks) + 1);
  result.bounds[0] = begin;
  for (int block = 1; block <= blocks; ++block) {
    // units * block fits: at most 2^48 elements and 2^15 blocks.
    result.bounds.push_back(begin + units * block / blocks * unit);
  }
  result.bounds.back() = end;
  return result;
}

Program program_of(const Schedule& schedule, int rank) {
  Program program;
  for (const PatternPtr& pattern : schedule.lanes) {
    Program::Lane lane;
    lane.begin = static_cast<std::uint32_t>(program.rounds.size());
    const std::int64_t rounds = pattern->rounds();
    for (std::int64_t round = 0; round < rounds; ++round) {
      const auto begin = static_cast<std::uint32_t>(program.steps.size());
      pattern->append(rank, round, program.steps);
      const auto end = static_cast<std::uint32_t>(program.steps.size());
      if (end != begin) program.rounds.push_back({round, begin, end});
    }
    lane.end = static_cast<std::uint32_t>(program.rounds.size());
    program.lanes.push_back(lane);
  }
  return program;
}

}  // namespace belay::comm
