#include "belay/data/sentence_cuts.h"

#include <gtest/gtest.h>

#include "belay/data/bpe_trainer.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

std::vector<Cut> cuts_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  SentenceCutter cutter;
  std::vector<Cut> cuts;
  cutter.find(TokenTexts(tokenizer), ids, cuts);
  return cuts;
}

std::vector<std::string> parts_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  std::vector<std::string> parts;
  std::uint64_t begin = 0;
  for (const Cut& cut : cuts_of(tokenizer, ids)) {
    EXPECT_GT(cut.at, begin);
    EXPECT_LE(cut.at, ids.size());
    parts.push_back(
        tokenizer.decode(std::span(ids).subspan(begin, static_cast<std::size_t>(cut.at - begin))));
    begin = cut.at;
  }
  parts.push_back(tokenizer.decode(std::span(ids).subspan(begin)));
  return parts;
}

TEST(SentenceCuts, BytesAreCutBehindTheWhiteSpace) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(parts_of(*tokenizer, "One. Two.\n第一句。第二句。"),
            (std::vector<std::string>{"One. ", "Two.\n", "第一句。", "第二句。"}));
  EXPECT_EQ(parts_of(*tokenizer, ""), std::vector<std::string>{""});
}

// Byte-pair encoding gives the blank to the word behind it: the cut goes in front of the blank. It
// may also join a full stop and the word behind it; then there is no place for a cut.
TEST(SentenceCuts, TokensAreNotDivided) {
  const TestDirectory directory;
  BpeTrainer trainer({.vocab_size = 300});
  const std::string text = "Here it is. There it was.\n\n你好。再见。";
  for (int i = 0; i < 50; ++i) trainer.feed(text);
  const auto tokenizer = load_tokenizer(directory.write("tokenizer.json", trainer.finish()));
  std::vector<std::int32_t> ids;
  tokenizer->encode("。再见", ids);
  ASSERT_EQ(ids.size(), 1U);
  EXPECT_EQ(parts_of(*tokenizer, text),
            (std::vector<std::string>{"Here it is.", " There it was.\n\n", "你好。再见。"}));
  EXPECT_EQ(parts_of(*tokenizer, "再见。你"), (std::vector<std::string>{"再见。", "你"}));
}

TEST(SentenceCuts, SpecialTokensAreNoTextAndStayWithWhatIsBeforeThem) {
  const TestDirectory directory;
  BpeTrainer trainer({.vocab_size = 257});
  const auto tokenizer = load_tokenizer(directory.write("tokenizer.json", trainer.finish()));
  const std::int32_t eod = tokenizer->end_of_document().value();
  std::vector<std::int32_t> ids;
  tokenizer->encode("One.\n", ids);
  ids.push_back(eod);
  tokenizer->encode("Two.\n", ids);
  ids.push_back(-5);  // no id of this tokenizer
  const auto cuts = cuts_of(*tokenizer, ids);
  ASSERT_EQ(cuts.size(), 2U);
  EXPECT_EQ(cuts[0].at, 6U);
  EXPECT_TRUE(cuts[0].paragraph);
  EXPECT_EQ(cuts[1].at, ids.size());
}

}  // namespace
}  // namespace belay::data
