#include "belay/data/jsonl.h"

#include <gtest/gtest.h>

#include "belay/data/test_files.h"

namespace belay::data {
namespace {

struct Outcome {
  bool good = false;
  std::string text;
  JsonlError error;
};

Outcome parse(std::string line, std::string_view key = "text") {
  const std::size_t size = line.size();
  line.resize(size + kJsonPadding);
  JsonlParser parser;
  Outcome outcome;
  std::string_view text;
  outcome.good = parser.parse(std::string_view(line).substr(0, size), key, text, outcome.error);
  if (outcome.good) outcome.text = text;
  return outcome;
}

TEST(Jsonl, TakesTheTextUnderTheKey) {
  EXPECT_EQ(parse(R"({"a":[1,{"text":"no"}],"text":"caf\u00e9 \ud83d\ude00\n"})").text,
            "caf\u00e9 \U0001F600\n");
  EXPECT_EQ(parse(R"({"body":"x"})", "body").text, "x");
  EXPECT_EQ(parse("  {\"text\":\"x\"}\r\n").text, "x");
  // Beyond 64 bits, which JSON allows.
  EXPECT_EQ(parse(R"({"id":123456789012345678901234567890,"text":"x"})").text, "x");
}

TEST(Jsonl, SaysWhatIsWrongAndWhere) {
  const auto refusal = [](std::string line, std::string_view what, std::int64_t offset) {
    const Outcome outcome = parse(std::move(line));
    EXPECT_FALSE(outcome.good);
    EXPECT_TRUE(contains(outcome.error.what, what));
    EXPECT_EQ(outcome.error.offset, offset) << outcome.error.what;
  };
  refusal("{\"text\":\"\xE6\"}", "not UTF-8", 9);
  refusal(R"({"text":"a"} {"text":"b"})", "extra data after the JSON value", 13);
  refusal(R"({"text":"a")", "ends inside the JSON value", 11);
  refusal(R"({"text":nope})", "not JSON", 9);
  refusal(R"({"text":7})", "something other than a string", -1);
  refusal(R"({"txt":"a"})", "no key \"text\"", -1);
  refusal(R"(["text"])", "not a JSON object", 0);
  EXPECT_FALSE(parse(R"({"text":"\ud83d"})").good);  // half a surrogate pair
}

TEST(Jsonl, ParsesAgainAfterAnError) {
  std::string bad = "{";
  std::string good = R"({"text":"fine"})";
  const std::size_t bad_size = bad.size();
  const std::size_t good_size = good.size();
  bad.resize(bad_size + kJsonPadding);
  good.resize(good_size + kJsonPadding);
  JsonlParser parser;
  JsonlError error;
  std::string_view text;
  EXPECT_FALSE(parser.parse(std::string_view(bad).substr(0, bad_size), "text", text, error));
  ASSERT_TRUE(parser.parse(std::string_view(good).substr(0, good_size), "text", text, error));
  EXPECT_EQ(text, "fine");
}

TEST(Jsonl, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("a\u00e9\u4e2d\U0001F600"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2U);
  EXPECT_EQ(find_invalid_utf8("a\xC0\xAF"), 1U);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1U);      // surrogate
  EXPECT_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1U);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("abc\xE4\xB8"), 3U);        // cut short
}

}  // namespace
}  // namespace belay::data
