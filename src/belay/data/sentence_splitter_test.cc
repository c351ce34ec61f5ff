#include "belay/data/sentence_splitter.h"

#include <gtest/gtest.h>

namespace belay::data {
namespace {

using Texts = std::vector<std::string>;

std::vector<SentenceEnd> ends_of(std::string_view text) {
  SentenceSplitter splitter;
  std::vector<SentenceEnd> ends;
  splitter.split(text, ends);
  return ends;
}

// The text cut behind the white space of each end; the last part is what follows the last end.
Texts sentences(std::string_view text) {
  Texts parts;
  std::size_t begin = 0;
  for (const SentenceEnd& end : ends_of(text)) {
    EXPECT_LT(begin, end.text_end);
    EXPECT_LE(end.text_end, end.end);
    EXPECT_LE(end.end, text.size());
    parts.emplace_back(text.substr(begin, end.end - begin));
    begin = end.end;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

TEST(SentenceSplitter, English) {
  EXPECT_EQ(sentences("One. Two? Three! \"Four.\" Five"),
            (Texts{"One. ", "Two? ", "Three! ", "\"Four.\" ", "Five"}));
  EXPECT_EQ(sentences("Pi is 3.14 (about). See example.com."),
            (Texts{"Pi is 3.14 (about). ", "See example.com."}));
  EXPECT_EQ(sentences("It ends... or does it? Yes."), (Texts{"It ends... or does it? ", "Yes."}));
}

TEST(SentenceSplitter, AbbreviationsEndNoSentence) {
  EXPECT_EQ(sentences("Mr. Smith met Prof. Jones. They spoke."),
            (Texts{"Mr. Smith met Prof. Jones. ", "They spoke."}));
  EXPECT_EQ(sentences("Use tools, e.g. a saw. Then rest."),
            (Texts{"Use tools, e.g. a saw. ", "Then rest."}));
}

TEST(SentenceSplitter, Chinese) {
  EXPECT_EQ(sentences("今天天气很好。我们去公园吧！你说呢？好"),
            (Texts{"今天天气很好。", "我们去公园吧！", "你说呢？", "好"}));
  EXPECT_EQ(sentences("他说：“走吧。”然后离开了。"), (Texts{"他说：“走吧。”", "然后离开了。"}));
  // Commas, colons and the enumeration comma end nothing; neither does a figure's point.
  EXPECT_EQ(sentences("版本3.5、4.0，以及：其他"), (Texts{"版本3.5、4.0，以及：其他"}));
  EXPECT_EQ(sentences("第一段。\n　　第二段。"), (Texts{"第一段。\n", "　　第二段。"}));
  EXPECT_EQ(sentences("使用 Debian。It works. 很好。"),
            (Texts{"使用 Debian。", "It works. ", "很好。"}));
}

TEST(SentenceSplitter, LinesEndSentencesUnlessTheyAreWrapped) {
  EXPECT_EQ(sentences("A heading\nThe text."), (Texts{"A heading\n", "The text."}));
  EXPECT_EQ(
      sentences("A sentence ended. Another that was longer was\nwrapped at a\nsmall width."),
      (Texts{"A sentence ended. ", "Another that was longer was\nwrapped at a\n", "small width."}));
  EXPECT_EQ(sentences("A sentence that was long enough to be wrapped\r\ngoes on. Then another."),
            (Texts{"A sentence that was long enough to be wrapped\r\ngoes on. ", "Then another."}));
  EXPECT_EQ(sentences("Kinds:\nfirst\nsecond"), (Texts{"Kinds:\n", "first\n", "second"}));
  EXPECT_EQ(sentences("It ended.\nlower case begins."),
            (Texts{"It ended.\n", "lower case begins."}));
  // A blank line ends everything, and belongs to what is before it.
  EXPECT_EQ(sentences("first\n\n \nsecond"), (Texts{"first\n\n \n", "second"}));
}

TEST(SentenceSplitter, TellsWhereTheWhiteSpaceIsAndWhichEndsAreOfLines) {
  const auto ends = ends_of("One.  Two.\n\nThree. Four");
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ(ends[0].text_end, 4U);
  EXPECT_EQ(ends[0].end, 6U);
  EXPECT_FALSE(ends[0].paragraph);
  EXPECT_EQ(ends[1].text_end, 10U);
  EXPECT_EQ(ends[1].end, 12U);
  EXPECT_TRUE(ends[1].paragraph);
  EXPECT_FALSE(ends[2].paragraph);
}

TEST(SentenceSplitter, TheEndOfTheTextCountsIfItEndsALine) {
  EXPECT_TRUE(ends_of("No end").empty());
  EXPECT_TRUE(ends_of("An end. ").empty());  // more may follow: "e.g. "
  ASSERT_EQ(ends_of("A line\n").size(), 1U);
  EXPECT_TRUE(ends_of("").empty());
  EXPECT_TRUE(ends_of(" \n\n ").empty());
}

TEST(SentenceSplitter, TakesAnyBytes) {
  EXPECT_EQ(sentences("a\xFF\xC0. B\xE6"), (Texts{"a\xFF\xC0. ", "B\xE6"}));
  EXPECT_EQ(sentences(std::string("a\0b. C", 6)), (Texts{std::string("a\0b. ", 5), "C"}));
  EXPECT_EQ(sentences("Cheers \U0001F600! Done"), (Texts{"Cheers \U0001F600! ", "Done"}));
}

// Long text is looked at in blocks; nobody can tell from the result.
TEST(SentenceSplitter, BlocksDoNotShow) {
  const std::string line =
      "One sentence. 第二句。 A third one, which was wrapped at this place,\nends.\n";
  std::string text;
  Texts expected;
  while (text.size() < 400000) {
    text += line;
    for (const char* part : {"One sentence. ", "第二句。 ",
                             "A third one, which was wrapped at this place,\nends.\n"}) {
      expected.emplace_back(part);
    }
  }
  expected.emplace_back();
  EXPECT_TRUE(sentences(text) == expected);
}

TEST(SentenceSplitter, ALineOfAnyLengthWithoutAnEndHasNone) {
  EXPECT_TRUE(ends_of(std::string(300000, 'x')).empty());
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "字";
  EXPECT_TRUE(ends_of(text).empty());
  EXPECT_EQ(ends_of(text + "。" + text).size(), 1U);
}

}  // namespace
}  // namespace belay::data
