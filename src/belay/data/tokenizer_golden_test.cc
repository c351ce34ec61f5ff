// Ids equal to those of independent implementations; see tests/golden/make_tokenizer_golden.mjs.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/data/bpe_tokenizer.h"
#include "belay/data/regex_splitter.h"
#include "belay/data/word_splitter.h"

namespace belay::data {
namespace {

struct Case {
  std::string text;
  nlohmann::json ids;  // tokenizer name -> list
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kList = [] {
    std::vector<Case> result;
    std::ifstream file(std::string(BELAY_SOURCE_DIR) + "/tests/golden/tokenizers.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto entry = nlohmann::json::parse(line);
      const bool bytes = entry.contains("hex");
      const auto text = entry[bytes ? "hex" : "text"].get<std::string>();
      result.push_back({bytes ? from_hex(text) : text, entry["ids"]});
    }
    return result;
  }();
  return kList;
}

// Where U+2581 stands for the space, one that was in the text reads as a space afterwards.
std::string without_space_marks(std::string text) {
  const std::string mark = "\u2581";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, mark.size(), " ");
  }
  return text;
}

class GoldenIds : public testing::TestWithParam<const char*> {};

TEST_P(GoldenIds, equal_those_of_independent_implementations) {
  const std::string name = GetParam();
  const std::string path = std::string(BELAY_SOURCE_DIR) +
                           (name == "trained" ? "/tests/golden/" : "/build/fixtures/") + name +
                           "/tokenizer.json";
  ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing; run tests/fetch_fixtures.sh";
  const auto tokenizer = load_tokenizer(path);
  const bool lossless = name != "qwen3";  // Qwen normalises to NFC
  const bool characters = name == "llama2" || name == "mistral";
  int compared = 0;
  for (const auto& [text, all_ids] : cases()) {
    if (!all_ids.contains(name)) continue;
    ++compared;
    const auto expected = all_ids[name].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> mapped;
    tokenizer->encode(text, mapped, SpecialText::map);
    EXPECT_EQ(mapped, expected) << text;
    std::vector<std::int32_t> ordinary;
    tokenizer->encode(text, ordinary);
    if (tokenizer->count_special_text(text) == 0) {
      EXPECT_EQ(ordinary, expected) << text;
    }
    for (const std::int32_t id : ordinary) EXPECT_FALSE(tokenizer->is_special(id)) << text;
    if (!lossless) continue;
    const std::string kept = characters ? without_space_marks(text) : text;
    EXPECT_EQ(tokenizer->decode(ordinary), kept);
    std::string streamed;
    for (const std::int32_t id : ordinary) streamed += tokenizer->token_bytes(id);
    EXPECT_TRUE(streamed == kept || (characters && streamed == " " + kept)) << text;
  }
  EXPECT_GT(compared, 200);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenIds,
                         testing::Values("gpt2", "qwen3", "llama3", "llama2", "mistral", "trained"),
                         [](const auto& param) { return std::string(param.param); });

// The hand-written scanners against PCRE2 running the patterns themselves.
TEST(WordSplitter, scanners_cut_where_the_patterns_do) {
  for (const std::string_view pattern : {kGpt2Pattern, kQwenPattern, kLlama3Pattern}) {
    const auto scanner = make_pattern_splitter(std::string(pattern), SplitMode::isolated, "test");
    const auto regex = make_regex_splitter(std::string(pattern), SplitMode::isolated, "test");
    for (const auto& [text, ids] : cases()) {
      if (ids.size() < 6) continue;  // not UTF-8
      std::vector<std::string> fast;
      std::vector<std::string> slow;
      scanner->split(text, [&](std::string_view word) { fast.emplace_back(word); });
      regex->split(text, [&](std::string_view word) { slow.emplace_back(word); });
      EXPECT_EQ(fast, slow) << pattern;
    }
  }
}

}  // namespace
}  // namespace belay::data
