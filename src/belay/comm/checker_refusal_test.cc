// Schedules broken in every way: the checker says what is wrong.

#include <gtest/gtest.h>

#include <utility>

#include "belay/comm/algorithm.h"
#include "belay/comm/checker.h"

namespace belay::comm {
namespace {

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

TEST(Checker, RefusesLentMemoryThatIsUsedOtherwise) {
  const CheckOptions lending{2, true, false};
  const ScheduleKey key = key_of(Algorithm::direct_store, 4, 16);
  EXPECT_EQ(Broken(key).verdict(lending), "");
  // Two ranks write to one place.
  Broken twice(key);
  twice.step(1, StepKind::lend, 1).src = twice.step(1, StepKind::lend, 0).src;
  expect_refusal(twice.verdict(lending), "in no order");
  // What is written is not what was read.
  Broken shifted(key);
  shifted.step(1, StepKind::lend).src.offset += 1;
  expect_refusal(shifted.verdict(lending), "in no order");
  Broken input(key);
  input.step(1, StepKind::lend).src.buffer = Buffer::input;
  expect_refusal(input.verdict(lending), "lends what is not output");
  Broken taken(key);
  taken.step(1, StepKind::send).kind = StepKind::lend;
  taken.step(1, StepKind::lend).src.buffer = Buffer::output;
  expect_refusal(taken.verdict(lending), "for what it is not");
  Broken size(key);
  size.step(1, StepKind::lend).count -= 1;
  size.step(2, StepKind::fill).count -= 1;
  EXPECT_NE(size.verdict(lending), "");
  Broken partial(key);
  Step& gather = partial.step(1, StepKind::gather, 2);
  gather.kind = StepKind::receive;
  gather.dst = {Buffer::work, 0};
  EXPECT_NE(partial.verdict(lending), "");
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
