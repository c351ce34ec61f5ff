#include "belay/data/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/data/bpe_tokenizer.h"
#include "belay/data/byte_alphabet.h"
#include "belay/data/merge_learner.h"
#include "belay/data/word_splitter.h"

namespace belay::data {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int32_t kBytes = 256;
constexpr std::int32_t kLargestVocab = 1 << 20;

BpeTrainerOptions checked(BpeTrainerOptions options) {
  const auto special = static_cast<std::int32_t>(options.special_tokens.size());
  if (options.vocab_size < kBytes + special || options.vocab_size > kLargestVocab) {
    fail(ExitCode::usage,
         "a vocabulary of {} cannot be trained; it must lie between {} (bytes and special tokens) "
         "and {}",
         options.vocab_size, kBytes + special, kLargestVocab);
  }
  std::vector<std::string> sorted = options.special_tokens;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
      (!sorted.empty() && sorted.front().size() < 2)) {
    fail(ExitCode::usage, "special tokens must be distinct and at least two bytes long");
  }
  return options;
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options)
    : options_(checked(std::move(options))),
      counter_(make_pattern_splitter(std::string(kQwenPattern), SplitMode::isolated, "trainer"),
               options_.limits) {}

void BpeTrainer::feed(std::string_view document) {
  counter_.feed(document);
}

std::string BpeTrainer::finish() {
  if (counter_.halvings() > 0) {
    log::info("tokenizer training: {} bytes of text, of which a sample of 1/{} was counted",
              counter_.bytes_fed(), std::int64_t{1} << counter_.halvings());
  }
  MergeLearner learner(counter_.words());
  const auto special = options_.special_tokens.size();
  const auto wanted = static_cast<std::size_t>(options_.vocab_size - kBytes) - special;
  const auto merges = learner.learn(wanted, options_.special_tokens);
  if (merges.size() < wanted) {
    log::warn(
        "tokenizer training: the text has only {} pairs worth merging; the vocabulary holds {} "
        "tokens instead of {}",
        merges.size(), kBytes + merges.size() + special, options_.vocab_size);
  }

  const ByteAlphabet alphabet;
  const auto& symbols = learner.symbols();
  Json vocab = Json::object();
  // push_back keeps the order without looking each key up among all earlier ones.
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < symbols.size(); ++id) {
    entries.push_back({alphabet.spell(symbols[id]), id});
  }
  Json pairs = Json::array();
  for (const auto& [left, right] : merges) {
    pairs.push_back({alphabet.spell(symbols[left]), alphabet.spell(symbols[right])});
  }
  Json added = Json::array();
  for (std::size_t i = 0; i < special; ++i) {
    added.push_back({{"id", symbols.size() + i},
                     {"content", options_.special_tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kQwenPattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
      {"post_processor", nullptr},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", std::move(vocab)},
        {"merges", std::move(pairs)}}}};
  return root.dump(1) + "\n";
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string json, const std::string& origin) {
  return std::make_unique<BpeTokenizer>(read_tokenizer_json(std::move(json), origin));
}

}  // namespace belay::data
