#include "belay/data/bpe_tokenizer.h"

#include <algorithm>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/data/char_class.h"
#include "belay/data/utf8.h"
#include "belay/data/word_cache.h"

namespace belay::data {

struct BpeTokenizer::Scratch {
  WordCache cache;
  MergeScratch merge;
  std::vector<std::int32_t> symbols;
  std::string prepended;
  std::string normalized;
  std::string prefixed;
};

class BpeTokenizer::Loan {
 public:
  explicit Loan(const BpeTokenizer& owner) : owner_(owner) {
    {
      const std::scoped_lock lock(owner_.pool_mutex_);
      if (!owner_.pool_.empty()) {
        scratch_ = std::move(owner_.pool_.back());
        owner_.pool_.pop_back();
      }
    }
    if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>();
  }
  ~Loan() {
    const std::scoped_lock lock(owner_.pool_mutex_);
    owner_.pool_.push_back(std::move(scratch_));
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  [[nodiscard]] Scratch& get() const { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

BpeTokenizer::BpeTokenizer(BpeDefinition definition)
    : def_(std::move(definition)),
      merges_(std::move(def_.merges)),
      special_(def_.tokens.size(), false) {
  if (!def_.byte_level) prepare_texts();
  for (std::size_t i = 0; i < def_.added.size(); ++i) {
    const AddedToken& token = def_.added[i];
    const auto index = static_cast<std::int32_t>(i);
    const std::size_t stage = token.normalized ? 1 : 0;
    def_.tokens[static_cast<std::size_t>(token.id)] = token.text;
    all_finders_[stage].add(token.text, index);
    if (token.special) {
      special_[static_cast<std::size_t>(token.id)] = true;
      special_finder_.add(token.text, index);
    } else {
      plain_finders_[stage].add(token.text, index);
    }
  }
  end_ = find_special(
      {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>"});
  begin_ = find_special({"<s>", "<|begin_of_text|>", "<bos>", "<|bos|>", "<|startoftext|>",
                         "<｜begin▁of▁sentence｜>"});
  padding_ =
      find_special({"<pad>", "<|pad|>", "[PAD]", "<|finetune_right_pad_id|>", "<｜▁pad▁｜>"});
}

BpeTokenizer::~BpeTokenizer() = default;

// From here on def_.tokens holds what each id contributes to decoded text.
void BpeTokenizer::prepare_texts() {
  for (std::string& text : def_.tokens) {
    for (const auto& [what, with] : def_.decode_replace) {
      for (std::size_t at = text.find(what); at != std::string::npos;
           at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
      }
    }
  }
  for (std::size_t byte = 0; byte < def_.byte_ids.size(); ++byte) {
    if (def_.byte_ids[byte] < 0) continue;
    def_.tokens[static_cast<std::size_t>(def_.byte_ids[byte])].assign(1, static_cast<char>(byte));
  }
}

std::optional<std::int32_t> BpeTokenizer::find_special(
    std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    for (const AddedToken& token : def_.added) {
      if (token.special && token.text == name) return token.id;
    }
  }
  return std::nullopt;
}

std::int32_t BpeTokenizer::vocab_size() const {
  return static_cast<std::int32_t>(def_.tokens.size());
}

void BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids,
                          SpecialText special) const {
  const Loan loan(*this);
  const TokenFinder& finder = special == SpecialText::map ? all_finders_[0] : plain_finders_[0];
  std::size_t done = 0;
  Place place = Place::start;
  while (const auto match = finder.find(text, done)) {
    const AddedToken& token = def_.added[static_cast<std::size_t>(match->token)];
    std::size_t begin = match->begin;
    std::size_t end = match->end;
    const auto blank = [&](std::size_t at) {
      return text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r';
    };
    while (token.strip_left && begin > done && blank(begin - 1)) --begin;
    while (token.strip_right && end < text.size() && blank(end)) ++end;
    encode_raw(text.substr(done, begin - done), special, place, loan.get(), ids);
    ids.push_back(token.id);
    done = end;
    place = Place::after_token;
  }
  encode_raw(text.substr(done), special, place, loan.get(), ids);
}

// Cuts out what is not UTF-8; those bytes are encoded one by one.
void BpeTokenizer::encode_raw(std::string_view text, SpecialText special, Place place,
                              Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  if (is_valid_utf8(text)) {
    encode_valid(text, special, place, scratch, ids);
    return;
  }
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = valid_character_length(text, at);
    if (length > 0) {
      at += length;
      continue;
    }
    if (at > start) {
      encode_valid(text.substr(start, at - start), special, place, scratch, ids);
    }
    append_byte(static_cast<unsigned char>(text[at]), ids);
    place = Place::inside;
    start = ++at;
  }
  if (start < text.size()) encode_valid(text.substr(start), special, place, scratch, ids);
}

void BpeTokenizer::encode_valid(std::string_view text, SpecialText special, Place place,
                                Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (!def_.prepend.empty() && place != Place::inside) {
    scratch.prepended.assign(def_.prepend).append(text);
    text = scratch.prepended;
  }
  if (def_.normalizer != nullptr) text = def_.normalizer->apply(text, scratch.normalized);
  const TokenFinder& finder = special == SpecialText::map ? all_finders_[1] : plain_finders_[1];
  std::size_t done = 0;
  while (const auto match = finder.find(text, done)) {
    encode_words(text.substr(done, match->begin - done), place, scratch, ids);
    ids.push_back(def_.added[static_cast<std::size_t>(match->token)].id);
    done = match->end;
    place = Place::after_token;
  }
  encode_words(text.substr(done), place, scratch, ids);
}

void BpeTokenizer::encode_words(std::string_view text, Place place, Scratch& scratch,
                                std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  const bool here = place == Place::start || (place == Place::after_token && !def_.prefix_first);
  if (here && !def_.prefix.empty() && !text.starts_with(def_.prefix)) {
    scratch.prefixed.assign(def_.prefix).append(text);
    text = scratch.prefixed;
  }
  def_.splitter->split(text, [&](std::string_view word) { encode_word(word, scratch, ids); });
}

void BpeTokenizer::encode_word(std::string_view word, Scratch& scratch,
                               std::vector<std::int32_t>& ids) const {
  if (def_.byte_level && word.size() == 1) {
    ids.push_back(def_.byte_ids[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > WordCache::kLongestWord) {
    merge_word(word, scratch);
    ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
    return;
  }
  WordCache::Slot& slot = scratch.cache.slot(word);
  if (slot.holds(word)) {
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return;
  }
  merge_word(word, scratch);
  WordCache::store(slot, word, scratch.symbols);
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

// Leaves the ids of the word in scratch.symbols.
void BpeTokenizer::merge_word(std::string_view word, Scratch& scratch) const {
  scratch.symbols.clear();
  if (def_.ignore_merges) {
    const auto whole = def_.vocab.find(word);
    if (whole != def_.vocab.end() && !special_[static_cast<std::size_t>(whole->second)]) {
      scratch.symbols.push_back(whole->second);
      return;
    }
  }
  if (def_.byte_level) {
    for (const char byte : word) {
      scratch.symbols.push_back(def_.byte_ids[static_cast<unsigned char>(byte)]);
    }
  } else {
    bool after_unknown = false;
    for (std::size_t at = 0; at < word.size();) {
      const std::uint32_t length = character_at(word, at).length;
      const std::string_view character = word.substr(at, length);
      at += length;
      const auto known = def_.vocab.find(character);
      if (known != def_.vocab.end()) {
        scratch.symbols.push_back(known->second);
        after_unknown = false;
        continue;
      }
      const bool spelled =
          def_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
            return def_.byte_ids[static_cast<unsigned char>(byte)] >= 0;
          });
      if (spelled) {
        for (const char byte : character) {
          scratch.symbols.push_back(def_.byte_ids[static_cast<unsigned char>(byte)]);
        }
        after_unknown = false;
      } else if (def_.unknown) {
        if (!after_unknown || !def_.fuse_unknown) scratch.symbols.push_back(*def_.unknown);
        after_unknown = true;
      }
    }
  }
  merges_.apply(scratch.symbols, scratch.merge);
}

void BpeTokenizer::append_byte(unsigned char byte, std::vector<std::int32_t>& ids) const {
  if (def_.byte_ids[byte] >= 0) {
    ids.push_back(def_.byte_ids[byte]);
  } else if (def_.unknown) {
    ids.push_back(*def_.unknown);
  }
}

bool BpeTokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

std::string_view BpeTokenizer::text_at(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    fail(ExitCode::data, "token id {} is outside the vocabulary [0, {}) of {}", id, vocab_size(),
         def_.origin);
  }
  return def_.tokens[static_cast<std::size_t>(id)];
}

std::string BpeTokenizer::token_bytes(std::int32_t id) const {
  return std::string(text_at(id));
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += text_at(id);
  std::size_t drop = 0;
  while (drop < static_cast<std::size_t>(def_.decode_strip) && drop < text.size() &&
         text[drop] == ' ') {
    ++drop;
  }
  if (drop > 0) text.erase(0, drop);
  return text;
}

std::int64_t BpeTokenizer::count_special_text(std::string_view text) const {
  std::int64_t count = 0;
  std::size_t from = 0;
  while (const auto match = special_finder_.find(text, from)) {
    ++count;
    from = match->end;
  }
  return count;
}

void BpeTokenizer::save(const std::string& path) const {
  write_file(path, def_.source);
}

}  // namespace belay::data
