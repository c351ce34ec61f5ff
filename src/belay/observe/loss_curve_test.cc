#include "belay/observe/loss_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "belay/base/error.h"

namespace belay {
namespace {

LossHistory falling(std::size_t steps) {
  LossHistory history;
  for (std::size_t step = 1; step <= steps; ++step) {
    const auto x = static_cast<double>(step);
    history.train.push_back({x, 3.0 + 6.0 * std::exp(-x / 50)});
    if (step % 50 == 0) history.val.push_back({x, history.train.back().y + 0.1});
  }
  return history;
}

TEST(LossHistoryTest, ReadsRecordsAndLeavesOutWhatIsNotFinite) {
  const std::string path = ::testing::TempDir() + "belay_history.jsonl";
  std::ofstream(path) << R"({"step":1,"loss":5.5})"
                      << "\n"
                      << R"({"step":2,"loss":null,"non_finite":["loss"]})"
                      << "\n"
                      << R"({"step":2,"val_loss":5.25,"val_tokens":9})"
                      << "\n"
                      << R"({"step":3,"lo)";
  const LossHistory history = read_loss_history(path);
  ASSERT_EQ(history.train.size(), 1U);
  EXPECT_EQ(history.train[0].y, 5.5);
  ASSERT_EQ(history.val.size(), 1U);
  EXPECT_EQ(history.val[0].x, 2.0);

  std::ofstream(path) << "{}\n{\"step\":1}\n";
  try {
    read_loss_history(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find(path + ":1:"), std::string::npos);
  }
}

TEST(AxisTest, TicksAreRoundAndFew) {
  const Axis axis(0, 1000, Scale::linear, 6);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(axis.label(200), "200");
  EXPECT_EQ(axis.position(250), 0.25);
  for (const double high : {1.0, 7.3, 33.0, 99.0, 180.0, 12345.0}) {
    for (const int count : {2, 4, 7, 10}) {
      const Axis any(0, high, Scale::linear, count);
      EXPECT_LE(any.ticks().size(), static_cast<std::size_t>(count) + 1) << high;
      EXPECT_GE(any.ticks().size(), 2U) << high << " " << count;
    }
  }
}

TEST(AxisTest, LogarithmsAreEvenlySpaced) {
  const Axis axis(1, 100, Scale::log, 6);
  EXPECT_DOUBLE_EQ(axis.position(10), 0.5);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  const Axis fractions(0.01, 0.5, Scale::log, 6);
  EXPECT_EQ(fractions.label(fractions.ticks().front()), "0.01");
}

TEST(CurveTest, ThinningKeepsTheMeanAndSmoothingHasNoStartUpBias) {
  const LossHistory history = falling(1000);
  const auto few = thinned(history.train, 100);
  ASSERT_EQ(few.size(), 100U);
  double sum = 0;
  for (const Point& point : few) sum += point.y;
  double expected = 0;
  for (const Point& point : history.train) expected += point.y;
  EXPECT_NEAR(sum / 100, expected / 1000, 1e-12);
  EXPECT_EQ(smoothed(history.train, 0.9)[0].y, history.train[0].y);
}

TEST(CurveTest, TextHasTheAskedSizeAndFalls) {
  const std::string text = draw_text(falling(200), 80, 20, Scale::linear);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 20U);
  for (const std::string& line : lines) {
    const auto continuation = [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    };
    const auto characters = static_cast<std::int64_t>(line.size()) -
                            std::count_if(line.begin(), line.end(), continuation);
    EXPECT_LE(characters, 88) << line;
  }
  // The curve starts in the upper left and ends in the lower right.
  const auto first_dot = [](const std::string& line) {
    for (std::size_t at = 0; at + 2 < line.size(); ++at) {
      // U+2800 to U+28FF.
      if (line[at] == '\xE2' && (static_cast<unsigned char>(line[at + 1]) & 0xFCU) == 0xA0U)
        return at;
    }
    return std::string::npos;
  };
  EXPECT_LT(first_dot(lines[1]), 20U) << text;
  EXPECT_GT(first_dot(lines[17]), 60U) << text;
  EXPECT_NE(text.find("●"), std::string::npos);
  EXPECT_NE(lines.back().find("200"), std::string::npos);
}

// Tags must nest and quotes must pair: enough of XML to catch a broken writer.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return false;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

TEST(CurveTest, SvgIsWellFormedAndHoldsBothSeries) {
  for (const Scale scale : {Scale::linear, Scale::log}) {
    const std::string svg = draw_svg(falling(5000), "a < b & \"c\"", scale);
    EXPECT_TRUE(well_formed(svg)) << svg;
    EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
    EXPECT_NE(svg.find("class=\"train\" points="), std::string::npos);
    EXPECT_NE(svg.find("validation"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_LT(svg.size(), 64000U) << "a long run stays a small picture";
  }
}

TEST(CurveTest, EmptyAndConstantRunsDraw) {
  EXPECT_TRUE(well_formed(draw_svg({}, "empty", Scale::log)));
  EXPECT_FALSE(draw_text({}, 80, 20, Scale::linear).empty());
  const LossHistory one{.train = {{1, 2.0}}, .val = {}};
  EXPECT_TRUE(well_formed(draw_svg(one, "one", Scale::log)));
  EXPECT_NE(draw_text(one, 80, 20, Scale::linear).find('\xE2'), std::string::npos);
}

}  // namespace
}  // namespace belay
