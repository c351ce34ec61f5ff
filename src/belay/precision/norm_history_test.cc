#include "belay/precision/norm_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "belay/base/error.h"

namespace belay {
namespace {

TEST(NormCodeTest, KeepsNormsWithinAPartInAThousand) {
  for (double norm = 1e-18; norm < 1e20; norm *= 1.37) {
    EXPECT_NEAR(std::exp2(log2_norm(norm_code(norm))) / norm, 1.0, 0.001) << norm;
  }
  EXPECT_EQ(norm_code(0.0), 0);
  EXPECT_EQ(log2_norm(0), -64.0);
  EXPECT_EQ(norm_code(1e-300), 1);
  EXPECT_EQ(norm_code(1e300), 65534);
  for (const double value : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(norm_code(value), kNotFinite);
    EXPECT_TRUE(std::isinf(log2_norm(norm_code(value))));
  }
  // What was decided from a code stays decided: the code of a code's value is the code.
  for (int code = 1; code <= 65534; ++code) {
    const auto narrow = static_cast<NormCode>(code);
    ASSERT_EQ(norm_code(std::exp2(log2_norm(narrow))), narrow);
  }
}

TEST(NormHistoryTest, KeepsTheNewestOfEachLayer) {
  NormHistory history(2, 3);
  for (const double step : {1.0, 2.0, 4.0, 8.0}) history.push(std::vector<double>{step, 1 / step});
  EXPECT_EQ(history.size(), 3);
  EXPECT_EQ(history.seen(), 4);
  std::vector<double> values(2);
  history.copy(0, values);
  EXPECT_EQ(values, (std::vector<double>{2, 3}));
  values.resize(3);
  history.copy(1, values);
  EXPECT_EQ(values, (std::vector<double>{-1, -2, -3}));
}

TEST(NormHistoryTest, GoesOnFromItsState) {
  NormHistory history(2, 5);
  for (int step = 0; step < 7; ++step) history.push(std::vector<double>{step + 0.5, 3.0});
  NormHistory same(2, 5);
  same.restore(history.state());
  EXPECT_EQ(same.state(), history.state());
  history.push(std::vector<double>{9, 9});
  same.push(std::vector<double>{9, 9});
  EXPECT_EQ(same.state(), history.state());

  NormHistory shorter(2, 2);
  shorter.restore(history.state());
  EXPECT_EQ(shorter.size(), 2);
  std::vector<double> expected(2);
  std::vector<double> values(2);
  history.copy(0, expected);
  shorter.copy(0, values);
  EXPECT_EQ(values, expected);

  NormHistory empty(2, 2);
  NormHistory target(2, 4);
  target.restore(empty.state());
  EXPECT_EQ(target.size(), 0);
  for (const char* damaged : {"", "2 1 1", "2 1 1 00010", "2 1 1 0001000g", "3 1 1 000100020003",
                              "2 2 1 0001000200030004", "2 -1 4 00010002", "2 1 1 00010002 x"}) {
    EXPECT_THROW(target.restore(damaged), Error) << damaged;
  }
}

}  // namespace
}  // namespace belay
