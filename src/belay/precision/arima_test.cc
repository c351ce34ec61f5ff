#include "belay/precision/arima.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "belay/base/allocation_count.h"
#include "belay/base/philox.h"

namespace belay {
namespace {

// A series that follows the model from its mean on, after 200 points of which nothing is kept.
std::vector<double> simulate(const ArimaModel& model, std::size_t count, std::uint64_t seed) {
  constexpr std::size_t kLead = 200;
  const auto normal = [&](std::size_t index) {
    const PhiloxBlock words = random_block({seed, 0, 5}, index);
    const double u = (words[0] + 1.0) * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * words[1] * 0x1p-32);
  };
  std::vector<double> w(kLead + count);
  std::vector<double> e(kLead + count);
  std::vector<double> series;
  double level = 0;
  for (std::size_t t = 2; t < kLead + count; ++t) {
    e[t] = std::sqrt(model.variance) * normal(t);
    w[t] = e[t];
    for (std::size_t i = 0; i < 2; ++i) {
      w[t] += model.ar[i] * w[t - 1 - i] + model.ma[i] * e[t - 1 - i];
    }
    if (t < kLead) continue;
    level = model.order.d == 0 ? w[t] + model.mean : level + w[t] + model.mean;
    series.push_back(level);
  }
  return series;
}

ArimaModel truth(const ArimaOrder& order, std::array<double, 2> ar, std::array<double, 2> ma,
                 double mean) {
  ArimaModel model;
  model.order = order;
  model.ar = ar;
  model.ma = ma;
  model.mean = mean;
  model.variance = 0.25;
  return model;
}

const ArimaModel kTruths[] = {
    truth({1, 0, 0, true}, {0.7, 0}, {}, 3),   truth({2, 0, 0, true}, {1.2, -0.5}, {}, -1),
    truth({0, 0, 1, true}, {}, {0.6, 0}, 2),   truth({1, 0, 1, true}, {0.8, 0}, {-0.4, 0}, 0.5),
    truth({0, 1, 1, false}, {}, {-0.6, 0}, 0), truth({1, 1, 0, true}, {0.5, 0}, {}, 0.2),
};

TEST(ArimaTest, RecoversKnownCoefficients) {
  ArimaFitter fitter(4000);
  for (const ArimaModel& expected : kTruths) {
    const std::string name = to_string(expected.order);
    const auto fitted = fitter.fit(simulate(expected, 4000, 7), expected.order);
    ASSERT_TRUE(fitted.has_value()) << name;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(fitted->ar[i], expected.ar[i], 0.06) << name;
      EXPECT_NEAR(fitted->ma[i], expected.ma[i], 0.06) << name;
    }
    EXPECT_NEAR(fitted->variance, expected.variance, 0.02) << name;
    EXPECT_NEAR(fitted->mean, expected.mean, 0.15) << name;
  }
}

// Two moving-average terms are in no default order, but can be asked for.
TEST(ArimaTest, FitsTwoMovingAverageTerms) {
  const ArimaModel expected = truth({1, 0, 2, true}, {0.5, 0}, {0.5, 0.3}, 1);
  ArimaFitter fitter(4000);
  const auto fitted = fitter.fit(simulate(expected, 4000, 3), expected.order);
  ASSERT_TRUE(fitted.has_value());
  EXPECT_NEAR(fitted->ar[0], 0.5, 0.08);
  EXPECT_NEAR(fitted->ma[0], 0.5, 0.08);
  EXPECT_NEAR(fitted->ma[1], 0.3, 0.08);
}

// AIC is known to choose too large an order now and then, so "mostly" is what can be asked.
TEST(ArimaTest, AkaikeMostlyPicksTheTrueOrder) {
  constexpr int kSeries = 40;
  ArimaFitter fitter(500);
  for (const ArimaModel& expected : kTruths) {
    int exact = 0;
    int differences = 0;
    for (int seed = 0; seed < kSeries; ++seed) {
      const auto series = simulate(expected, 500, 100 + static_cast<std::uint64_t>(seed));
      const auto chosen = fitter.choose(series);
      ASSERT_TRUE(chosen.has_value());
      if (chosen->order == expected.order) ++exact;
      if (chosen->order.d == expected.order.d) ++differences;
    }
    EXPECT_GE(exact, kSeries / 2) << to_string(expected.order);
    EXPECT_GE(differences, kSeries * 8 / 10) << to_string(expected.order);
  }
}

// Over many series the value 50 points ahead lies inside the 90% band about 90 times in a hundred.
TEST(ArimaTest, BandsCoverWhatTheyPromise) {
  constexpr std::size_t kHistory = 128;
  constexpr std::size_t kAhead = 50;
  constexpr int kSeries = 400;
  ArimaFitter fitter(kHistory);
  const double z = normal_quantile(0.95);
  std::vector<ArimaForecast> ahead(kAhead);
  for (const ArimaModel& expected : kTruths) {
    int covered[2] = {};
    for (int seed = 0; seed < kSeries; ++seed) {
      const auto series =
          simulate(expected, kHistory + kAhead, 1000 + static_cast<std::uint64_t>(seed));
      const std::span<const double> past(series.data(), kHistory);
      const auto model = fitter.choose(past);
      ASSERT_TRUE(model.has_value());
      fitter.forecast(past, *model, ahead);
      for (const std::size_t h : {std::size_t{0}, kAhead - 1}) {
        const double distance = std::abs(series[kHistory + h] - ahead[h].mean);
        if (distance <= z * std::sqrt(ahead[h].variance)) ++covered[h == 0 ? 0 : 1];
      }
    }
    // One standard deviation of the count is 6.
    EXPECT_GE(covered[0], 0.86 * kSeries) << to_string(expected.order);
    EXPECT_LE(covered[0], 0.95 * kSeries) << to_string(expected.order);
    EXPECT_GE(covered[1], 0.80 * kSeries) << to_string(expected.order);
    EXPECT_LE(covered[1], 0.97 * kSeries) << to_string(expected.order);
  }
}

// By hand: an AR(1) falls back to its mean by powers of the coefficient, and its variance is the
// geometric sum; a random walk stays where it is and its variance grows with the distance.
TEST(ArimaTest, ForecastsFollowTheFormulas) {
  std::vector<double> series;
  for (std::size_t t = 0; t < 64; ++t) series.push_back(t % 2 == 0 ? 1.0 : 2.0);
  ArimaFitter fitter(64);
  std::vector<ArimaForecast> ahead(3);
  ArimaModel model = truth({1, 0, 0, true}, {0.5, 0}, {}, 1.0);
  model.variance = 4;
  model.points = 1'000'000'000;  // the mean is known
  fitter.forecast(series, model, ahead);
  EXPECT_NEAR(ahead[0].mean, 1.5, 1e-12);
  EXPECT_NEAR(ahead[2].mean, 1.125, 1e-12);
  EXPECT_NEAR(ahead[2].variance, 4 * (1 + 0.25 + 0.0625), 1e-6);

  model = truth({0, 1, 0, false}, {}, {}, 0);
  model.points = 1'000'000'000;
  fitter.forecast(series, model, ahead);
  EXPECT_EQ(ahead[2].mean, 2.0);
  EXPECT_NEAR(ahead[2].variance, 0.75, 1e-8);

  model = truth({0, 1, 1, true}, {}, {-0.5, 0}, 0.25);
  model.points = 1'000'000'000;
  fitter.forecast(series, model, ahead);
  EXPECT_NEAR(ahead[2].mean - ahead[0].mean, 0.5, 1e-12);
  EXPECT_NEAR(ahead[2].variance, 0.25 * (1 + 0.25 + 0.25), 1e-8);
}

TEST(ArimaTest, SaysNothingWhereThereIsNothingToSay) {
  ArimaFitter fitter(100);
  EXPECT_FALSE(fitter.choose(std::vector<double>(100, 1.5)).has_value());
  EXPECT_FALSE(fitter.choose(simulate(kTruths[0], 31, 1)).has_value());
  std::vector<double> broken = simulate(kTruths[0], 100, 1);
  broken[50] = std::nan("");
  EXPECT_FALSE(fitter.choose(broken).has_value());
  // A straight line has differences that do not vary; its level does.
  std::vector<double> line;
  for (int t = 0; t < 100; ++t) line.push_back(0.25 * t);
  const auto model = fitter.choose(line);
  if (model) {
    EXPECT_TRUE(std::isfinite(model->aic));
  }
}

TEST(ArimaTest, AWarmFitterAllocatesNothing) {
  ArimaFitter fitter(128);
  const auto series = simulate(kTruths[3], 128, 9);
  std::vector<ArimaForecast> ahead(50);
  const std::int64_t before = allocation_count();
  const auto model = fitter.choose(series);
  fitter.forecast(series, *model, ahead);
  EXPECT_EQ(allocation_count() - before, 0);
}

TEST(NormalQuantileTest, KnownValues) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-9);
  EXPECT_NEAR(normal_quantile(0.05), -1.6448536269514722, 1e-9);
}

}  // namespace
}  // namespace belay
