#include "belay/doctor/forecast_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/precision/simulated_gradients.h"

namespace belay {
namespace {

// Layer "calm" stays at 0.1, "rising" doubles every 200 steps from 0.01 on; the scale is 1024.
GradientRecord record_of(std::int64_t steps) {
  GradientRecord record;
  record.layers = {"calm", "rising"};
  record.limit = 65504;
  for (std::int64_t step = 1; step <= steps; ++step) {
    record.steps.push_back(step);
    record.log2_scale.push_back(10);
    const auto at = static_cast<std::uint64_t>(step);
    const double rise = std::exp2(static_cast<double>(step) / 200);
    record.codes.push_back(norm_code(0.1 * testing::noise(0.2, at, 0)));
    record.codes.push_back(norm_code(0.01 * rise * testing::noise(0.1, at, 1)));
  }
  return record;
}

// 0.01 x 2^(step / 200) reaches 65504 / 1024 at step 2529.
TEST(ForecastReportTest, SeesTheHeadRoomEnd) {
  const ForecastReport report = forecast_report(record_of(2400), {});
  EXPECT_EQ(report.step, 2400);
  EXPECT_EQ(report.scale, 1024);
  const LayerOutlook& calm = report.layers[0];
  const LayerOutlook& rising = report.layers[1];
  EXPECT_TRUE(calm.fitted);
  EXPECT_NEAR(calm.median, 0.1, 0.02);
  EXPECT_EQ(calm.endangered_in, 0);
  EXPECT_NEAR(rising.median / (0.01 * std::exp2(13)), 1, 0.2);
  EXPECT_NEAR(static_cast<double>(rising.leaves_in), 129, 40);
  EXPECT_GT(rising.endangered_in, 0);
  EXPECT_LE(rising.endangered_in, rising.leaves_in);
  EXPECT_EQ(report.drawn, 1U);
  EXPECT_EQ(rising.compared, 0);
  const std::string text = report_text(report);
  EXPECT_NE(text.find("rising"), std::string::npos) << text;
  EXPECT_NE(text.find("leaves the head room in"), std::string::npos) << text;
}

TEST(ForecastReportTest, LaysAnOldForecastBesideWhatCame) {
  ForecastOptions options;
  options.at = 1000;
  options.layer = "calm";
  const ForecastReport report = forecast_report(record_of(2400), options);
  EXPECT_EQ(report.step, 1000);
  EXPECT_EQ(report.drawn, 0U);
  for (const LayerOutlook& layer : report.layers) {
    EXPECT_EQ(layer.compared, 50) << layer.name;
    EXPECT_GE(layer.inside, 42) << layer.name;
  }
  // The recorded line goes on under the band.
  EXPECT_EQ(report.plot.series.front().points.back().x, 1200);
  EXPECT_EQ(report.plot.band_high.size(), 50U);
}

TEST(ForecastReportTest, DrawsBandAndHeadRoom) {
  ForecastReport report = forecast_report(record_of(2400), {});
  const std::string svg = draw_svg(report.plot);
  for (const char* part : {"class=\"band\"", "class=\"limit\"", "class=\"forecast\"",
                           "class=\"train\"", "Gradient norm of rising", "head room", "95% band"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  const std::string text = draw_text(report.plot, 80, 18);
  EXPECT_NE(text.find("forecast"), std::string::npos) << text;
  // A head room out of sight is left out of the picture.
  ForecastOptions options;
  options.limit = 3e38;
  EXPECT_EQ(draw_svg(forecast_report(record_of(2400), options).plot).find("class=\"limit\""),
            std::string::npos);
}

TEST(ForecastReportTest, JsonHasEveryLayer) {
  const auto json = nlohmann::json::parse(report_json(forecast_report(record_of(600), {})));
  EXPECT_EQ(json["step"], 600);
  ASSERT_EQ(json["layers"].size(), 2U);
  EXPECT_EQ(json["layers"][1]["name"], "rising");
  EXPECT_GT(json["layers"][1]["high"].get<double>(), json["layers"][1]["median"].get<double>());
}

TEST(ForecastReportTest, ShortAndOverflowingRecords) {
  GradientRecord record = record_of(30);
  record.codes[7] = kNotFinite;
  const ForecastReport report = forecast_report(record, {});
  EXPECT_FALSE(report.layers[0].fitted);
  EXPECT_EQ(report.overflows, 1);
  EXPECT_NE(report_text(report).find("too few steps"), std::string::npos);
  EXPECT_FALSE(draw_text(report.plot, 80, 18).empty());
  EXPECT_TRUE(nlohmann::json::accept(report_json(report)));
}

TEST(ForecastReportTest, RefusesWhatIsNotThere) {
  const auto code_of = [](const GradientRecord& record, const ForecastOptions& options) {
    try {
      forecast_report(record, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(code_of(record_of(0), {}), ExitCode::data);
  ForecastOptions options;
  options.at = 601;
  EXPECT_EQ(code_of(record_of(600), options), ExitCode::usage);
  options.at = 0;
  options.layer = "none";
  EXPECT_EQ(code_of(record_of(600), options), ExitCode::usage);
}

}  // namespace
}  // namespace belay
