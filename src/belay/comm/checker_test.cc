// Proofs for every generator, and that the checker refuses schedules that are broken.

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

void expect_right(const ScheduleKey& key, const Layout& layout = {}) {
  const Schedule schedule = make_schedule(key, layout);
  std::vector<Program> programs;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    programs.push_back(program_of(schedule, rank));
  }
  for (const bool shared : {false, true}) {
    const CheckOptions options{1, shared, is_order_stable(key) && reduces(key.collective)};
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
      if (step.kind == StepKind::send || step.kind == StepKind::post) sent += step.count;
    }
    return sent;
  };
  ScheduleKey key;
  key.ranks = 8;
  key.count = 8192;
  for (const Algorithm algorithm :
       {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct, Algorithm::hierarchical}) {
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

// --- What the checker refuses.

struct Broken {
  Schedule schedule;
  std::vector<Program> programs;

  explicit Broken(ScheduleKey key, const Layout& layout = {})
      : schedule(make_schedule(key, layout)) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      programs.push_back(program_of(schedule, rank));
    }
  }
  Step& step(int rank, StepKind kind, int nth = 0) {
    for (Step& candidate : programs[static_cast<std::size_t>(rank)].steps) {
      if (candidate.kind == kind && nth-- == 0) return candidate;
    }
    ADD_FAILURE() << "no such step";
    return programs[0].steps[0];
  }
  [[nodiscard]] std::string verdict(CheckOptions options = {}) const {
    return check_programs(schedule, programs, options);
  }
};

ScheduleKey key_of(Algorithm algorithm, int ranks, std::int64_t count) {
  ScheduleKey key{.algorithm = algorithm};
  key.ranks = ranks;
  key.count = count;
  return key;
}

void expect_refusal(const std::string& verdict, std::string_view part) {
  EXPECT_NE(verdict.find(part), std::string::npos) << "verdict: " << verdict;
}

TEST(Checker, RefusesAMissingContribution) {
  Broken broken(key_of(Algorithm::recursive_doubling, 4, 8));
  // The second exchange forgets what the first one brought.
  Step& second = broken.step(2, StepKind::receive_reduce, 1);
  second.base = {Buffer::input, 0};
  expect_refusal(broken.verdict(), "rounds a partial result, of 3 contributions");
}

TEST(Checker, RefusesADoubleContribution) {
  Broken broken(key_of(Algorithm::recursive_doubling, 4, 8));
  for (int rank = 0; rank < 4; ++rank) {
    // Both exchanges with the same partner.
    broken.step(rank, StepKind::send, 1).peer = rank ^ 1;
    broken.step(rank, StepKind::receive_reduce, 1).peer = rank ^ 1;
  }
  expect_refusal(broken.verdict(), "a contribution twice");
}

TEST(Checker, RefusesAnotherElement) {
  Broken broken(key_of(Algorithm::ring, 4, 8));
  broken.step(2, StepKind::receive_reduce).base.offset += 1;
  expect_refusal(broken.verdict(), "adds element");
}

TEST(Checker, RefusesAResultInTheWrongPlace) {
  Broken broken(key_of(Algorithm::direct, 4, 8));
  std::swap(broken.step(1, StepKind::receive, 0).dst, broken.step(1, StepKind::receive, 1).dst);
  expect_refusal(broken.verdict(), "output");
}

TEST(Checker, RefusesWhatIsNeverWritten) {
  Broken broken(key_of(Algorithm::ring, 3, 9));
  broken.step(0, StepKind::send, 1).src.offset = 0;
  EXPECT_NE(broken.verdict(), "");
  Broken other({.collective = Collective::broadcast,
                .algorithm = Algorithm::binomial,
                .ranks = 4,
                .count = 3});
  broken = std::move(other);
  broken.step(0, StepKind::send).src = {Buffer::output, 0};
  broken.step(1, StepKind::receive).src.buffer = Buffer::output;
  broken.step(0, StepKind::copy).count = 0;
  expect_refusal(broken.verdict(), "reads what has not been written");
}

TEST(Checker, RefusesUnorderedStepsOnOneElement) {
  // A round in which what is being sent is overwritten.
  Broken broken(key_of(Algorithm::ring, 4, 8));
  const Place sent = broken.step(2, StepKind::send, 1).src;
  Step& reduce = broken.step(2, StepKind::receive_reduce, 1);
  reduce.dst = sent;
  expect_refusal(broken.verdict(), "an unordered step");
  // Lanes that share an element.
  ScheduleKey key = key_of(Algorithm::segmented_ring, 2, 8);
  key.segments = 2;
  Broken lanes(key);
  lanes.step(0, StepKind::receive_reduce, 1).dst.offset -= 4;
  expect_refusal(lanes.verdict(), "an unordered step");
}

TEST(Checker, RefusesAResultThatOverwritesASharedInput) {
  // In place, a single exchange would overwrite what the partner still reads.
  Broken broken(key_of(Algorithm::recursive_doubling, 2, 4));
  for (int rank = 0; rank < 2; ++rank) {
    broken.step(rank, StepKind::receive_reduce).dst = {Buffer::output, 0};
    auto& steps = broken.programs[static_cast<std::size_t>(rank)].steps;
    auto& rounds = broken.programs[static_cast<std::size_t>(rank)].rounds;
    steps.pop_back();
    rounds.pop_back();
    broken.programs[static_cast<std::size_t>(rank)].lanes[0].end -= 1;
  }
  EXPECT_EQ(broken.verdict({1, false, false}), "");
  expect_refusal(broken.verdict({1, true, false}), "an unordered step");
}

TEST(Checker, RefusesMessagesThatDoNotMatch) {
  Broken size(key_of(Algorithm::ring, 4, 8));
  size.step(1, StepKind::receive).count -= 1;
  expect_refusal(size.verdict(), "elements from rank 0, which sends 2");

  Broken peer(key_of(Algorithm::ring, 4, 8));
  peer.step(1, StepKind::send).peer = 3;
  EXPECT_NE(peer.verdict(), "");

  Broken type(key_of(Algorithm::ring, 4, 8));
  type.step(1, StepKind::receive_reduce, 1).src.buffer = Buffer::input;
  expect_refusal(type.verdict(), "another element type");

  // A message that nobody takes.
  Broken extra(
      {.collective = Collective::barrier, .algorithm = Algorithm::dissemination, .ranks = 2});
  Program& program = extra.programs[0];
  program.steps.push_back(program.steps[0]);
  program.rounds.push_back({1, 2, 3});
  program.lanes[0].end += 1;
  expect_refusal(extra.verdict({2, false, false}), "never receives a message");
}

TEST(Checker, RefusesACircleOfWaiting) {
  // Everybody sends in one round and receives in the next: only buffers would help.
  Broken broken(key_of(Algorithm::recursive_doubling, 2, 4));
  ScheduleKey key = key_of(Algorithm::recursive_doubling, 2, 4);
  key.post_elements = 4;
  Broken posted(key);
  EXPECT_EQ(posted.verdict(), "");
  for (int rank = 0; rank < 2; ++rank) posted.step(rank, StepKind::post).kind = StepKind::send;
  expect_refusal(posted.verdict(), "waits for rank 1 for ever");
  // More posts than the channel holds.
  Broken twice(
      {.collective = Collective::barrier, .algorithm = Algorithm::dissemination, .ranks = 2});
  for (Program& program : twice.programs) {
    const Step post = program.steps[0];
    const Step receive = program.steps[1];
    program.steps = {post, post, receive, receive};
    program.rounds = {{0, 0, 2}, {1, 2, 4}};
    program.lanes[0].end = 2;
  }
  EXPECT_EQ(twice.verdict({2, false, false}), "");
  expect_refusal(twice.verdict({1, false, false}), "for ever");
}

TEST(Checker, RefusesRoundedPartialResults) {
  Broken broken(key_of(Algorithm::ring, 4, 8));
  broken.step(1, StepKind::receive_reduce, 0).dst.buffer = Buffer::output;
  expect_refusal(broken.verdict(), "rounds a partial result");
}

TEST(Checker, RefusesAnotherAssociation) {
  Broken ring(key_of(Algorithm::ring, 4, 8));
  EXPECT_EQ(ring.verdict(), "");
  expect_refusal(ring.verdict({1, false, true}), "added up in another order");
  Broken swapped(key_of(Algorithm::recursive_doubling, 4, 8));
  EXPECT_EQ(swapped.verdict({1, false, true}), "");
  Step& step = swapped.step(1, StepKind::receive_reduce, 0);
  step.message_first = !step.message_first;
  expect_refusal(swapped.verdict(), "added up in another order");
}

TEST(Checker, RefusesWhatLiesOutside) {
  Broken broken(key_of(Algorithm::ring, 4, 8));
  broken.step(1, StepKind::receive).dst.offset = 7;
  expect_refusal(broken.verdict(), "outside of a buffer");
  Broken input(key_of(Algorithm::ring, 4, 8));
  input.step(1, StepKind::receive).dst.buffer = Buffer::input;
  expect_refusal(input.verdict(), "writes to the input");
  Broken self(key_of(Algorithm::ring, 4, 8));
  self.step(1, StepKind::send).peer = 1;
  expect_refusal(self.verdict(), "is not another rank");
}

}  // namespace
}  // namespace belay::comm
