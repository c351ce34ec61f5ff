// Proofs for every generator.

#include "belay/comm/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "belay/comm/algorithm.h"

namespace belay::comm {
namespace {

std::vector<int> rank_counts() {
  std::vector<int> counts;
  for (int p = 1; p <= 33; ++p) counts.push_back(p);
  counts.insert(counts.end(), {64, 100, 128});
  return counts;
}

std::vector<std::int64_t> element_counts(int p) {
  if (p > 33) return {p - 1, 131};
  std::vector<std::int64_t> counts{0, 1, p - 1, p, p + 1, 7, 61, 127};
  if (p <= 9) counts.push_back(16 * 4 * p + 5);
  return counts;
}

std::string describe(const ScheduleKey& key) {
  return std::string(name_of(key.collective)) + " " + std::string(name_of(key.algorithm)) +
         " p=" + std::to_string(key.ranks) + " n=" + std::to_string(key.count) +
         " root=" + std::to_string(key.root) + " segments=" + std::to_string(key.segments) +
         " posts=" + std::to_string(key.post_elements) +
         " inner=" + std::string(name_of(key.inner)) + " outer=" + std::string(name_of(key.outer));
}

// Whether its sums associate in the order of ranks, asked to or not.
bool is_order_stable(const ScheduleKey& key) {
  if (key.order_stable || !reduces(key.collective)) return true;
  if (key.algorithm == Algorithm::direct || key.algorithm == Algorithm::direct_store ||
      key.algorithm == Algorithm::one_shot) {
    return true;
  }
  return key.collective == Collective::all_reduce && is_power_of_two(key.ranks) &&
         (key.algorithm == Algorithm::recursive_doubling ||
          key.algorithm == Algorithm::halving_doubling);
}

void expect_right(const ScheduleKey& key, const Layout& layout = {}) {
  const Schedule schedule = make_schedule(key, layout);
  std::vector<Program> programs;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    programs.push_back(program_of(schedule, rank));
  }
  for (const bool shared : {false, true}) {
    // What is lent lies in the channel beside what is read.
    const int capacity = needs_shared_memory(key.algorithm) ? 2 : 1;
    const CheckOptions options{capacity, shared, is_order_stable(key) && reduces(key.collective)};
    EXPECT_EQ(check_programs(schedule, programs, options), "")
        << describe(key) << " shared=" << shared;
  }
}

// Cuts that are not even, with an empty block where there are several.
std::vector<std::int64_t> ragged(int p, std::int64_t count) {
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(p) + 1, count);
  bounds[0] = 0;
  for (int rank = 1; rank < p; ++rank) {
    bounds[static_cast<std::size_t>(rank)] = std::min<std::int64_t>(count, rank * (rank - 1) / 2);
  }
  return bounds;
}

class ScheduleProof : public testing::TestWithParam<Algorithm> {};

TEST_P(ScheduleProof, AllReduce) {
  for (const int p : rank_counts()) {
    for (const std::int64_t count : element_counts(p)) {
      ScheduleKey key{.collective = Collective::all_reduce, .algorithm = GetParam()};
      key.ranks = p;
      key.count = count;
      key.segments = 1 + p % 4;
      expect_right(key);
      key.post_elements = count;
      expect_right(key);
      if (p <= 17) {
        key.order_stable = true;
        expect_right(key);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(AllReduce, ScheduleProof,
                         testing::ValuesIn(algorithms_of(Collective::all_reduce).begin(),
                                           algorithms_of(Collective::all_reduce).end()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ScheduleProofs, RingsInAnyOrder) {
  for (const int p : {2, 3, 5, 8, 12}) {
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::double_ring, Algorithm::segmented_ring}) {
      Layout layout;
      for (int rank = 0; rank < p; ++rank) layout.ring.push_back((rank * 5 + 3) % p);
      if (p % 5 == 0) std::swap(layout.ring = {4, 1, 0, 3, 2}, layout.ring);
      ScheduleKey key{.collective = Collective::all_reduce, .algorithm = algorithm};
      key.ranks = p;
      key.count = 131;
      key.segments = 3;
      for (const bool stable : {false, true}) {
        key.order_stable = stable;
        expect_right(key, layout);
      }
    }
  }
}

TEST(ScheduleProofs, HierarchiesOfAllKinds) {
  const std::vector<std::vector<int>> layouts = {
      {0, 0, 1, 1},
      {0, 1, 0, 1, 0, 1},
      {0, 0, 0, 1},
      {0, 0, 0, 1, 1, 2, 2, 2, 2, 2},
      {5, 5, 5, 5, 7, 7, 7, 9, 9, 9, 9, 9, 9},
      {0, 1, 2, 3, 4},
      {3, 3, 3},
  };
  for (const std::vector<int>& domains : layouts) {
    for (int inner = 0; inner < 4; ++inner) {
      for (int outer = 0; outer < 5; ++outer) {
        for (const std::int64_t count : {0, 1, 5, 97, 1024}) {
          ScheduleKey key{.algorithm = Algorithm::hierarchical};
          key.ranks = static_cast<int>(domains.size());
          key.count = count;
          key.segments = 2;
          key.inner = static_cast<Inner>(inner);
          key.outer = static_cast<Outer>(outer);
          expect_right(key, {domains, {}, {}});
        }
      }
    }
  }
}

TEST(ScheduleProofs, HierarchiesOfAnySize) {
  for (const int p : rank_counts()) {
    for (const int size : {2, 3, 8}) {
      Layout layout;
      for (int rank = 0; rank < p; ++rank) layout.domain_of.push_back(rank / size);
      ScheduleKey key{.algorithm = Algorithm::hierarchical};
      key.ranks = p;
      key.inner = static_cast<Inner>((p + size) % 4);
      key.outer = static_cast<Outer>(p % 5);
      key.segments = 1 + p % 3;
      for (const std::int64_t count : element_counts(p)) {
        key.count = count;
        expect_right(key, layout);
      }
    }
  }
}

TEST(ScheduleProofs, ScatterAndGather) {
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (const int p : rank_counts()) {
        for (const std::int64_t count : element_counts(p)) {
          ScheduleKey key{.collective = collective, .algorithm = algorithm};
          key.ranks = p;
          key.count = count;
          expect_right(key);
          if (p <= 9) expect_right(key, {{}, {}, ragged(p, count)});
          key.order_stable = true;
          if (p <= 9) expect_right(key);
        }
      }
    }
  }
}

TEST(ScheduleProofs, FromAndToARoot) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (const int p : rank_counts()) {
        for (const std::int64_t count : element_counts(p)) {
          ScheduleKey key{.collective = collective, .algorithm = algorithm};
          key.ranks = p;
          key.count = count;
          key.segments = 1 + p % 5;
          key.root = static_cast<int>((count + p) % p);
          expect_right(key);
          key.order_stable = true;
          if (p <= 9) expect_right(key);
        }
      }
    }
  }
}

TEST(ScheduleProofs, AllToAllAndBarrier) {
  for (const int p : rank_counts()) {
    for (const Algorithm algorithm : algorithms_of(Collective::all_to_all)) {
      for (const std::int64_t block : {0, 1, 3}) {
        ScheduleKey key{.collective = Collective::all_to_all, .algorithm = algorithm};
        key.ranks = p;
        key.count = block * p;
        expect_right(key);
      }
    }
    ScheduleKey key{.collective = Collective::barrier, .algorithm = Algorithm::dissemination};
    key.ranks = p;
    expect_right(key);
  }
}

// A barrier lets nobody go before the last has come: every rank hears of every other.
TEST(ScheduleProofs, ABarrierHearsOfEverybody) {
  for (const int p : {2, 3, 7, 8, 33}) {
    const Schedule schedule = make_schedule(
        {.collective = Collective::barrier, .algorithm = Algorithm::dissemination, .ranks = p});
    std::vector<std::vector<bool>> heard(static_cast<std::size_t>(p),
                                         std::vector<bool>(static_cast<std::size_t>(p)));
    for (std::size_t rank = 0; rank < heard.size(); ++rank) heard[rank][rank] = true;
    for (std::int64_t round = 0; round < schedule.lanes[0]->rounds(); ++round) {
      const auto before = heard;
      for (int rank = 0; rank < p; ++rank) {
        std::vector<Step> steps;
        schedule.lanes[0]->append(rank, round, steps);
        for (const Step& step : steps) {
          if (step.kind != StepKind::receive) continue;
          for (std::size_t other = 0; other < before.size(); ++other) {
            if (before[static_cast<std::size_t>(step.peer)][other]) {
              heard[static_cast<std::size_t>(rank)][other] = true;
            }
          }
        }
      }
    }
    for (const auto& of_rank : heard) {
      EXPECT_EQ(std::count(of_rank.begin(), of_rank.end(), true), p);
    }
  }
}

TEST(ScheduleProofs, BytesAreAsTheFormulasSay) {
  const auto sent_by = [](const ScheduleKey& key, int rank, const Layout& layout) {
    std::int64_t sent = 0;
    for (const Step& step : program_of(make_schedule(key, layout), rank).steps) {
      if (sends(step.kind)) sent += step.count;
    }
    return sent;
  };
  ScheduleKey key;
  key.ranks = 8;
  key.count = 8192;
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct,
                                    Algorithm::direct_store, Algorithm::hierarchical}) {
    key.algorithm = algorithm;
    EXPECT_EQ(sent_by(key, 3, {}), 2 * 7 * 1024) << name_of(algorithm);
  }
  key.algorithm = Algorithm::recursive_doubling;
  EXPECT_EQ(sent_by(key, 3, {}), 3 * 8192);
  // Circulant: not a power of two, and no more bytes.
  key.algorithm = Algorithm::halving_doubling;
  key.ranks = 5;
  key.count = 8000;
  EXPECT_EQ(sent_by(key, 3, {}), 2 * 4 * 1600);
}

}  // namespace
}  // namespace belay::comm
