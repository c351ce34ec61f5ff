#include "belay/precision/norm_forecast.h"

#include <gtest/gtest.h>

#include <cmath>

#include "belay/precision/norm_history.h"
#include "belay/precision/simulated_gradients.h"

namespace belay {
namespace {

// Logarithms of norms whose own logarithm falls back to a level, with noise from step to step.
std::vector<double> wandering(std::size_t count, std::uint32_t stream, double drift) {
  std::vector<double> values;
  double state = 0;
  for (std::size_t step = 0; step < count; ++step) {
    state = 0.97 * state + 0.05 * std::log(testing::noise(1, step, stream));
    const double own = 0.2 * std::log(testing::noise(1, step, stream + 100000));
    values.push_back(-3 + state + own + drift * static_cast<double>(step));
  }
  return values;
}

TEST(NormForecastTest, BandsCoverSingleSteps) {
  PrecisionConfig config;
  config.forecast_confidence = 0.9;
  NormForecaster forecaster(config);
  for (const double drift : {0.0, 0.004}) {
    std::int64_t covered = 0;
    std::int64_t all = 0;
    for (std::uint32_t stream = 0; stream < 150; ++stream) {
      const std::vector<double> values = wandering(512 + 200, stream, drift);
      ASSERT_TRUE(forecaster.run({values.data(), 512}));
      for (const ForecastPoint& point : forecaster.points()) {
        const double actual = values[512 + static_cast<std::size_t>(point.ahead) - 1];
        covered += actual >= point.low && actual <= point.high ? 1 : 0;
        ++all;
      }
    }
    const double share = static_cast<double>(covered) / static_cast<double>(all);
    EXPECT_GE(share, 0.82) << drift;
    EXPECT_LE(share, 0.97) << drift;
  }
}

TEST(NormForecastTest, ReachesTheHorizonAndPassesOverOverflows) {
  PrecisionConfig config;
  config.forecast_horizon = 199;
  NormForecaster forecaster(config);
  std::vector<double> values = wandering(300, 1, 0);
  ASSERT_TRUE(forecaster.run(values));
  ASSERT_EQ(forecaster.points().size(), 50U);
  EXPECT_EQ(forecaster.points().front().ahead, 4);
  EXPECT_EQ(forecaster.points().back().ahead, 199);
  const double median = forecaster.points().back().median;
  values.insert(values.begin() + 100, std::numeric_limits<double>::infinity());
  ASSERT_TRUE(forecaster.run(values));
  EXPECT_EQ(forecaster.points().back().median, median);

  EXPECT_FALSE(forecaster.run({values.data(), 100}));
  EXPECT_TRUE(forecaster.points().empty());
  EXPECT_FALSE(forecaster.run(std::vector<double>(300, -2.0)));
}

}  // namespace
}  // namespace belay
