#include "belay/data/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "belay/base/error.h"

namespace belay::data {
namespace {

std::unique_ptr<Tokenizer> fixture(const std::string& name) {
  const std::string path =
      std::string(BELAY_SOURCE_DIR) + "/build/fixtures/" + name + "/tokenizer.json";
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(path + " is missing; run tests/fetch_fixtures.sh");
  }
  return load_tokenizer(path);
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                                 SpecialText special = SpecialText::ordinary) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids, special);
  return ids;
}

using Ids = std::vector<std::int32_t>;

TEST(BpeTokenizer, gpt2_published_ids) {
  const auto tokenizer = fixture("gpt2");
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_document(), 50256);
  EXPECT_EQ(encode(*tokenizer, "Hello, world!"), (Ids{15496, 11, 995, 0}));
  EXPECT_EQ(encode(*tokenizer, "  two  spaces\n\ttab"), (Ids{220, 734, 220, 9029, 198, 197, 8658}));
  EXPECT_EQ(encode(*tokenizer, "naïve café 🤗"), (Ids{2616, 38776, 40304, 12520, 97, 245}));
  EXPECT_EQ(encode(*tokenizer, "don’t don't 12345 6"),
            (Ids{9099, 447, 247, 83, 836, 470, 17031, 2231, 718}));
  EXPECT_EQ(encode(*tokenizer, "你好，世界。秦川雄帝宅"),
            (Ids{19526, 254, 25001, 121,   171, 120,   234, 10310, 244, 45911, 234, 16764,
                 163,   100, 99,    32432, 251, 37239, 226, 30585, 251, 22522, 227}));
}

TEST(BpeTokenizer, qwen_published_ids) {
  const auto tokenizer = fixture("qwen3");
  EXPECT_EQ(encode(*tokenizer, "Hello, world!"), (Ids{9707, 11, 1879, 0}));
  EXPECT_EQ(encode(*tokenizer, "  two  spaces\n\ttab"), (Ids{220, 1378, 220, 12621, 198, 58149}));
  EXPECT_EQ(encode(*tokenizer, "你好，世界。秦川雄帝宅"),
            (Ids{108386, 3837, 99489, 1773, 101141, 100410, 100759, 100432, 101326}));
  EXPECT_EQ(encode(*tokenizer, "naïve café 🤗"),
            (Ids{3376, 37572, 586, 51950, 11162, 97, 245}));
  EXPECT_EQ(encode(*tokenizer, "don’t don't 12345 6"),
            (Ids{15007, 1405, 1513, 944, 220, 16, 17, 18, 19, 20, 220, 21}));
  EXPECT_EQ(encode(*tokenizer, "e\u0301"), (Ids{963}));
  EXPECT_EQ(encode(*tokenizer, "第　一章"), (Ids{29437, 22441, 14777, 44928}));
  EXPECT_EQ(encode(*tokenizer, "\r\n\r\n  x"), (Ids{871, 220, 856}));
  EXPECT_EQ(encode(*tokenizer, "１２３"), (Ids{20109, 24918, 33517}));
  EXPECT_EQ(encode(*tokenizer, "<|im_start|>user\nhi<|im_end|>\n", SpecialText::map),
            (Ids{151644, 872, 198, 6023, 151645, 198}));
}

TEST(BpeTokenizer, llama3_published_ids) {
  const auto tokenizer = fixture("llama3");
  EXPECT_EQ(encode(*tokenizer, "Hello, world!"), (Ids{9906, 11, 1917, 0}));
  EXPECT_EQ(encode(*tokenizer, "你好，世界。"), (Ids{57668, 53901, 3922, 102616, 1811}));
}

TEST(BpeTokenizer, llama2_published_ids) {
  const auto tokenizer = fixture("llama2");
  EXPECT_EQ(encode(*tokenizer, "Hello, world!"), (Ids{15043, 29892, 3186, 29991}));
  EXPECT_EQ(encode(*tokenizer, "  two  spaces\n\ttab"),
            (Ids{259, 1023, 29871, 8162, 13, 12, 3891}));
  EXPECT_EQ(encode(*tokenizer, "naïve café 🤗"),
            (Ids{1055, 30085, 345, 274, 28059, 29871, 243, 162, 167, 154}));
}

TEST(BpeTokenizer, special_text_in_data_does_not_end_a_document) {
  const auto tokenizer = fixture("gpt2");
  const std::string text = "a<|endoftext|>b";
  const Ids ids = encode(*tokenizer, text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 50256), 0);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->count_special_text(text), 1);
  EXPECT_EQ(encode(*tokenizer, text, SpecialText::map), (Ids{64, 50256, 65}));
}

}  // namespace
}  // namespace belay::data
