#include "belay/plan/characteristics.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/device/ops/all.h"

namespace belay {
namespace {

template <class... Args>
std::vector<std::string_view> names_of(OpList<Args...>) {
  return {Args::kName...};
}

TEST(CharacteristicsTest, EveryOperatorHasAUnit) {
  for (const std::string_view op : names_of(AllOps{})) EXPECT_NO_THROW(unit_of(op)) << op;
  EXPECT_THROW(unit_of("convolution"), Error);
}

PlannedOp planned(const char* op, const char* tag, std::int64_t calls, double flops, double bytes,
                  double seconds) {
  return {op, "k", tag, "", calls, flops, bytes, seconds};
}

TEST(CharacteristicsTest, CallsOfOneOperatorAddUp) {
  Plan plan;
  plan.ops = {planned("norm_forward", "forward", 2, 10, 20, 1),
              planned("matmul", "forward", 1, 600, 10, 5),
              planned("norm_forward", "backward", 1, 10, 20, 1)};
  const Roofline machine{.flops_per_s = 100, .bytes_per_s = 10};
  const Characteristics c = characterise(plan, machine);
  ASSERT_EQ(c.ops.size(), 2U);
  const OpCharacter& product = c.ops[0];
  EXPECT_EQ(product.op, "matmul");
  EXPECT_EQ(product.unit, Unit::cube);
  EXPECT_FALSE(product.memory_bound(machine));
  EXPECT_DOUBLE_EQ(product.bound_seconds(machine), 6);
  EXPECT_DOUBLE_EQ(product.share, 5.0 / 8.0);
  const OpCharacter& norm = c.ops[1];
  EXPECT_EQ(norm.calls, 3);
  EXPECT_DOUBLE_EQ(norm.flops, 30);
  EXPECT_DOUBLE_EQ(norm.intensity(), 0.5);
  EXPECT_TRUE(norm.memory_bound(machine));
  EXPECT_DOUBLE_EQ(norm.bound_seconds(machine), 6);
  // 6.3 s of arithmetic and 7 s of memory under a roofline of 12 s.
  EXPECT_DOUBLE_EQ(c.density, 6.3 / 12);
  EXPECT_DOUBLE_EQ(c.memory_intensity, 7.0 / 12);
  EXPECT_EQ(c.units.vector, 0.2);
}

TEST(CharacteristicsTest, UnitsFollowWhatBinds) {
  EXPECT_EQ(share_units(0.9, 0.9).cube, 0.6);
  EXPECT_EQ(share_units(0.8, 0.71).vector, 0.5);
  EXPECT_EQ(share_units(0.5, 0.5).scalar, 0.4);
}

}  // namespace
}  // namespace belay
