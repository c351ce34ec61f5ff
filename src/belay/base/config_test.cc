#include "belay/base/config.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"

namespace belay::config {
namespace {

enum class Shade : std::uint8_t { light, dark };
constexpr std::string_view kShades[] = {"light", "dark"};

struct Inner {
  double depth = 0.5;
};

struct Paint {
  std::int64_t coats = 2;
  std::int32_t cans = 1;
  double gloss = 0.25;
  bool wet = false;
  std::string name = "white";
  Shade shade = Shade::light;
  DType dtype = DType::f32;
  std::array<double, 2> mix = {0.5, 0.5};
  std::optional<std::int64_t> batch;
  Inner inner;

  static constexpr std::string_view kSection = "paint";
  static std::span<const Field> fields() {
    static constexpr std::string_view kDtypes[] = {"f32", "bf16"};
    static const Field kFields[] = {
        field<&Paint::coats>("coats", "layers of paint", at_least(1)),
        field<&Paint::cans>("cans", "cans of paint", at_least(0)),
        field<&Paint::gloss>("gloss", "how shiny", below(0, 1)),
        field<&Paint::wet>("wet", "still drying"),
        field<&Paint::name>("name", "what the can says"),
        field<&Paint::shade>("shade", "how dark", one_of(kShades)),
        field<&Paint::dtype>("dtype", "arithmetic", one_of(kDtypes)),
        field<&Paint::mix>("mix", "parts of pigment", between(0, 1)),
        field<&Paint::batch>("batch", "lot number", at_least(0)),
        field<&Paint::inner, &Inner::depth>("depth", "of the inner layer"),
    };
    return kFields;
  }
};

struct Wall {
  std::int64_t height = 3;

  static constexpr std::string_view kSection = "wall";
  static std::span<const Field> fields() {
    static const Field kFields[] = {field<&Wall::height>("height", "in metres", positive())};
    return kFields;
  }
};

class ConfigTest : public ::testing::Test {
 protected:
  Paint paint_;
  Wall wall_;
  std::vector<Section> sections_ = {section(paint_), section(wall_)};

  std::string error_of(std::string_view text) {
    try {
      read_text(text, "room.toml", sections_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "";
  }
  std::string override_error(std::string_view assignment) {
    try {
      apply_override(assignment, sections_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "";
  }
};

TEST_F(ConfigTest, ReadsEveryKind) {
  read_text(
      "[paint]\ncoats = 3\ngloss = 0\nwet = true\nname = \"rot \\\"1\\\"\"\nshade = \"dark\"\n"
      "dtype = \"bf16\"\nmix = [1, 0.25]\nbatch = 7\ndepth = 1e-3\n",
      "room.toml", sections_);
  EXPECT_EQ(paint_.coats, 3);
  EXPECT_EQ(paint_.gloss, 0.0);
  EXPECT_TRUE(paint_.wet);
  EXPECT_EQ(paint_.name, "rot \"1\"");
  EXPECT_EQ(paint_.shade, Shade::dark);
  EXPECT_EQ(paint_.dtype, DType::bf16);
  EXPECT_EQ(paint_.mix, (std::array<double, 2>{1.0, 0.25}));
  EXPECT_EQ(paint_.batch, 7);
  EXPECT_EQ(paint_.inner.depth, 1e-3);
  EXPECT_EQ(wall_.height, 3) << "keys that are not named keep their values";
}

TEST_F(ConfigTest, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_EQ(error_of("[paint]\n\ncoatz = 1\n"),
            "room.toml:3: unknown key \"coatz\" in [paint]; did you mean \"coats\"?");
  EXPECT_EQ(error_of("[pant]\ncoats = 1\n"),
            "room.toml:1: unknown section [pant]; did you mean [paint]?");
  EXPECT_EQ(error_of("[paint]\nheight = 1\n"),
            "room.toml:2: unknown key \"height\" in [paint]; it belongs in [wall]");
  EXPECT_EQ(error_of("[wall]\nzzzzzzzz = 1\n"),
            "room.toml:2: unknown key \"zzzzzzzz\" in [wall]; valid keys: height");
  EXPECT_EQ(error_of("coats = 1\n"),
            "room.toml:1: \"coats\" stands outside of a section; put it under a line such as "
            "[paint]");
}

TEST_F(ConfigTest, WrongTypesNameFileLineKeyValueAndTheWayOut) {
  EXPECT_EQ(error_of("[paint]\ncoats = \"three\"\n"),
            "room.toml:2: paint.coats = 'three': expected an integer");
  EXPECT_EQ(error_of("[paint]\ncoats = 1.5\n"),
            "room.toml:2: paint.coats = 1.5: expected an integer");
  EXPECT_EQ(error_of("[paint]\nmix = [1]\n"),
            "room.toml:2: paint.mix = [ 1 ]: expected an array of 2 numbers");
  EXPECT_EQ(error_of("[paint]\nshade = \"drak\"\n"),
            "room.toml:2: paint.shade = \"drak\": expected one of \"light\", \"dark\"; did you "
            "mean \"dark\"?");
  EXPECT_EQ(error_of("[paint]\ndtype = \"f64\"\n"),
            "room.toml:2: paint.dtype = \"f64\": expected one of \"f32\", \"bf16\"; did you mean "
            "\"f32\"?");
}

TEST_F(ConfigTest, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(error_of("[paint]\ncoats = 0\n"), "room.toml:2: paint.coats = 0: must be at least 1");
  EXPECT_EQ(error_of("[paint]\ngloss = 1.0\n"),
            "room.toml:2: paint.gloss = 1.0: must be at least 0 and less than 1");
  EXPECT_EQ(error_of("[wall]\nheight = 0\n"),
            "room.toml:2: wall.height = 0: must be greater than 0");
  EXPECT_NE(error_of("[paint]\ngloss = nan\n"), "");
  EXPECT_NE(error_of("[paint]\ndepth = inf\n"), "");
  EXPECT_NE(error_of("[paint]\ncans = 4294967296\n"), "") << "does not fit the member";
}

TEST_F(ConfigTest, BrokenTomlNamesTheLine) {
  const std::string message = error_of("[paint]\ncoats = \n");
  EXPECT_EQ(message.rfind("room.toml:2: not valid TOML: ", 0), 0U) << message;
}

TEST_F(ConfigTest, OverridesTakeTomlAndBareWords) {
  apply_override("paint.coats=9", sections_);
  apply_override("paint.shade=dark", sections_);
  apply_override("paint.name=true", sections_);
  apply_override("paint.mix=[0.1, 0.9]", sections_);
  EXPECT_EQ(paint_.coats, 9);
  EXPECT_EQ(paint_.shade, Shade::dark);
  EXPECT_EQ(paint_.name, "true");
  EXPECT_EQ(paint_.mix, (std::array<double, 2>{0.1, 0.9}));
  EXPECT_EQ(override_error("paint.coats=many"),
            "--set paint.coats=many: paint.coats = 'many': expected an integer");
  EXPECT_EQ(override_error("paint.coat=1"),
            "--set paint.coat=1: unknown key \"coat\" in [paint]; did you mean \"coats\"?");
  EXPECT_EQ(override_error("coats=1"),
            "--set coats=1: expected section.key=value, as in --set train.steps=100");
  EXPECT_NE(override_error("paint.coats=1\ngloss = 0.5"), "") << "one assignment only";
}

TEST_F(ConfigTest, WrittenConfigurationReadsBack) {
  paint_ = {.coats = 5,
            .cans = 3,
            .gloss = 0.1,
            .wet = true,
            .name = "a\"b\\c\n漆",
            .shade = Shade::dark,
            .dtype = DType::bf16,
            .mix = {1.0, 1e-30},
            .batch = {},
            .inner = {.depth = 1000.0}};
  const std::string text = to_toml(sections_);
  Paint paint;
  Wall wall;
  const std::vector<Section> sections = {section(paint), section(wall)};
  read_text(text, "effective", sections);
  EXPECT_EQ(to_toml(sections), text);
  EXPECT_EQ(paint.name, paint_.name);
  EXPECT_EQ(paint.mix, paint_.mix);
  EXPECT_FALSE(paint.batch.has_value());
  EXPECT_NE(text.find("# layers of paint"), std::string::npos);
  EXPECT_NE(text.find("(light | dark)"), std::string::npos);
}

TEST_F(ConfigTest, DocumentationListsEveryKeyWithItsDefault) {
  const std::string text = to_markdown(sections_);
  EXPECT_NE(text.find("### `[paint]`"), std::string::npos);
  EXPECT_NE(text.find("| `coats` | integer | `2` | layers of paint; at least 1 |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| `batch` | integer | derived | lot number; at least 0 |"),
            std::string::npos);
}

}  // namespace
}  // namespace belay::config
