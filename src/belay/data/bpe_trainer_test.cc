#include "belay/data/bpe_trainer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/data/merge_learner.h"

namespace belay::data {
namespace {

const std::vector<std::string> kDocuments = {
    "the cat sat on the mat, the cat sat on the hat; that was that.\n",
    "床前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。明月明月明月。\n",
    "aaaaaaa aaaaaa aaaaa banana bananas 1234 1234\n\n\t\tindent\r\n",
};

std::unique_ptr<Tokenizer> train(const std::vector<std::string>& documents,
                                 BpeTrainerOptions options) {
  BpeTrainer trainer(std::move(options));
  for (const auto& document : documents) trainer.feed(document);
  return tokenizer_from_json(trainer.finish(), "trained");
}

TEST(BpeTrainer, loses_nothing) {
  const auto tokenizer = train(kDocuments, {.vocab_size = 280});
  EXPECT_EQ(tokenizer->vocab_size(), 280);
  EXPECT_EQ(tokenizer->end_of_document(), 279);
  std::string text = kDocuments[0] + kDocuments[1] + kDocuments[2];
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  std::vector<std::int32_t> ids;
  tokenizer->encode(text, ids);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(ids.size(), text.size());
}

TEST(BpeTrainer, order_of_documents_does_not_show) {
  BpeTrainer forward({.vocab_size = 320});
  BpeTrainer backward({.vocab_size = 320});
  for (const auto& document : kDocuments) forward.feed(document);
  for (auto it = kDocuments.rbegin(); it != kDocuments.rend(); ++it) backward.feed(*it);
  EXPECT_EQ(forward.finish(), backward.finish());
}

TEST(BpeTrainer, says_when_the_text_is_too_small) {
  const auto tokenizer = train({"ab ab"}, {.vocab_size = 1000});
  EXPECT_EQ(tokenizer->vocab_size(), 258);  // 256 bytes, "ab", end of document
}

TEST(BpeTrainer, special_text_never_becomes_a_word_token) {
  const auto tokenizer =
      train({"mark mark mark mark"}, {.vocab_size = 300, .special_tokens = {"mark"}});
  std::vector<std::int32_t> ids;
  tokenizer->encode("mark", ids);
  EXPECT_GT(ids.size(), 1U);
  EXPECT_EQ(tokenizer->decode(ids), "mark");
}

TEST(BpeTrainer, refuses_impossible_sizes) {
  EXPECT_THROW(BpeTrainer({.vocab_size = 256}), Error);
  EXPECT_THROW(BpeTrainer({.vocab_size = 300, .special_tokens = {"ab", "ab"}}), Error);
}

// The ids that Hugging Face's tokenizers give with this file are checked in tokenizer_golden_test.
TEST(BpeTrainer, writes_the_same_file_every_time) {
  const std::string directory = std::string(BELAY_SOURCE_DIR) + "/tests/golden/trained/";
  BpeTrainer trainer({.vocab_size = 480});
  std::ifstream text(directory + "text.txt");
  for (std::string line; std::getline(text, line);) trainer.feed(line + "\n");
  const std::string json = trainer.finish();
  const std::string written = testing::TempDir() + "trained_tokenizer.json";
  if (json != read_file(directory + "tokenizer.json")) {
    write_file(written, json);
    FAIL() << "the trained tokenizer differs; it was left in " << written;
  }
}

// The plain algorithm, counting everything anew for each merge.
std::vector<MergeLearner::Pair> learn_naively(std::vector<std::vector<std::uint32_t>> words,
                                              const std::vector<std::int64_t>& counts,
                                              std::size_t most) {
  std::vector<MergeLearner::Pair> merges;
  while (merges.size() < most) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> pairs;
    for (std::size_t w = 0; w < words.size(); ++w) {
      for (std::size_t i = 0; i + 1 < words[w].size(); ++i) {
        pairs[{words[w][i], words[w][i + 1]}] += counts[w];
      }
    }
    auto best = pairs.end();
    for (auto it = pairs.begin(); it != pairs.end(); ++it) {
      if (best == pairs.end() || it->second > best->second) best = it;
    }
    if (best == pairs.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    const auto merged = static_cast<std::uint32_t>(256 + merges.size());
    merges.push_back({left, right});
    for (auto& word : words) {
      std::vector<std::uint32_t> next;
      for (std::size_t i = 0; i < word.size(); ++i) {
        if (i + 1 < word.size() && word[i] == left && word[i + 1] == right) {
          next.push_back(merged);
          ++i;
        } else {
          next.push_back(word[i]);
        }
      }
      word = next;
    }
  }
  return merges;
}

TEST(MergeLearner, equals_counting_anew) {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16) % below;
  };
  for (int round = 0; round < 50; ++round) {
    std::map<std::string, std::int64_t> distinct;
    for (int w = 0; w < 40; ++w) {
      std::string word;
      for (std::uint32_t length = 1 + random(12); length > 0; --length) {
        word.push_back(static_cast<char>('a' + random(round % 2 == 0 ? 2 : 4)));
      }
      distinct[word] += 1 + random(5);
    }
    std::vector<WordCounter::Word> words;
    std::vector<std::vector<std::uint32_t>> symbols;
    std::vector<std::int64_t> counts;
    for (const auto& [word, count] : distinct) {
      words.push_back({word, count});
      symbols.emplace_back(word.begin(), word.end());
      counts.push_back(count);
    }
    MergeLearner learner(words);
    EXPECT_EQ(learner.learn(30, {}), learn_naively(symbols, counts, 30)) << "round " << round;
  }
}

TEST(WordCounter, sampling_keeps_proportions) {
  WordCounter counter(make_pattern_splitter(std::string(kQwenPattern), SplitMode::isolated, "test"),
                      {.bytes = 40'000, .words = 1 << 20});
  for (int document = 0; document < 20'000; ++document) {
    counter.feed("common text " + std::to_string(document) + " \u4E2D" +
                 std::string(1, static_cast<char>('a' + document % 26)) +
                 std::to_string(document * 7919));
    counter.feed(fmt::format("w{}\u6587x{}", char('a' + document % 23),
                             std::string(5, char('a' + document % 17))));
    std::string unique = "q";
    for (int n = document; n > 0; n /= 26) unique.push_back(static_cast<char>('a' + n % 26));
    counter.feed(unique + unique);
  }
  EXPECT_GT(counter.halvings(), 0);
  std::size_t bytes = 0;
  std::int64_t common = 0;
  for (const auto& word : counter.words()) {
    bytes += word.text.size();
    if (word.text == "common") common = word.count;
  }
  EXPECT_LE(bytes, 40'000U);
  const double estimate = static_cast<double>(common << counter.halvings());
  EXPECT_NEAR(estimate, 20'000, 2'000);
}

}  // namespace
}  // namespace belay::data
