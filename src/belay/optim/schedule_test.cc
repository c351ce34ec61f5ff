#include "belay/optim/schedule.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"

namespace belay {
namespace {

ScheduleConfig schedule(ScheduleKind kind) {
  return {.kind = kind,
          .lr = 1e-3,
          .min_lr = 1e-4,
          .warmup_steps = 10,
          .total_steps = 100,
          .decay_steps = 20};
}

TEST(ScheduleTest, CosineFollowsTheFieldReportAtStep51) {
  const ScheduleConfig cosine = schedule(ScheduleKind::cosine);
  EXPECT_NEAR(learning_rate(cosine, 51), 6.126e-4, 5e-8);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 55), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 100), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1000), 1e-4);
}

TEST(ScheduleTest, ANewPeakGivesAnotherCurveAtTheSameStep) {
  ScheduleConfig cosine = schedule(ScheduleKind::cosine);
  cosine.lr = 5e-4;
  EXPECT_NEAR(learning_rate(cosine, 51), 3.2783e-4, 5e-8);
}

TEST(ScheduleTest, EveryKindWarmsUpLinearlyFromTheFirstStep) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const ScheduleConfig config = schedule(kind);
    EXPECT_DOUBLE_EQ(learning_rate(config, 1), 1e-4) << name_of(kind);
    EXPECT_DOUBLE_EQ(learning_rate(config, 5), 5e-4) << name_of(kind);
    EXPECT_DOUBLE_EQ(learning_rate(config, 10), 1e-3) << name_of(kind);
    EXPECT_LE(learning_rate(config, 11), 1e-3) << name_of(kind);
  }
}

TEST(ScheduleTest, WithoutWarmUpTheFirstStepIsAlreadyOnTheCurve) {
  ScheduleConfig linear = schedule(ScheduleKind::linear);
  linear.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(linear, 1), 1e-3 - 9e-4 / 100);
}

TEST(ScheduleTest, LinearReachesTheFloorAtTheEnd) {
  const ScheduleConfig linear = schedule(ScheduleKind::linear);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 55), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 100), 1e-4);
}

TEST(ScheduleTest, WsdStaysAtThePeakUntilItsDecay) {
  const ScheduleConfig wsd = schedule(ScheduleKind::wsd);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 11), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 80), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 90), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 100), 1e-4);
}

TEST(ScheduleTest, ConstantNeverEnds) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::constant), 100000), 1e-3);
}

TEST(ScheduleTest, NamesParseBack) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    EXPECT_EQ(parse_schedule(name_of(kind)), kind);
  }
  EXPECT_FALSE(parse_schedule("cosin").has_value());
}

void expect_refused(const ScheduleConfig& config, const std::string& part) {
  try {
    check_schedule(config);
    FAIL() << "accepted; wanted a refusal with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ScheduleTest, ValuesThatDoNotFitTogetherAreRefused) {
  ScheduleConfig config = schedule(ScheduleKind::cosine);
  EXPECT_NO_THROW(check_schedule(config));
  config.warmup_steps = 101;
  expect_refused(config, "warmup_steps 101");
  config = schedule(ScheduleKind::cosine);
  config.min_lr = 2e-3;
  expect_refused(config, "min_lr 0.002");
  config = schedule(ScheduleKind::wsd);
  config.decay_steps = 91;
  expect_refused(config, "decay_steps 91");
  config = schedule(ScheduleKind::linear);
  config.lr = -1.0;
  expect_refused(config, "not negative");
  config = schedule(ScheduleKind::linear);
  config.total_steps = -5;
  expect_refused(config, "steps -5");
}

}  // namespace
}  // namespace belay
