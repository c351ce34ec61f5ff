// Reads Hugging Face's tokenizer.json. Whatever would change the ids and is not understood is an
// error, never skipped.

#include <algorithm>

#include "belay/data/byte_alphabet.h"
#include "belay/data/tokenizer_json_steps.h"

namespace belay::data {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Ids may leave holes (real files do), but only so many: the table is sized by the highest id.
constexpr std::int64_t kMostHoles = 65536;
constexpr std::size_t kMostMerges = 16'777'216;

class Reader {
 public:
  Reader(std::string json, const std::string& origin) : fields_(origin) {
    def_.source = std::move(json);
    def_.origin = origin;
    def_.byte_ids.fill(-1);
  }

  BpeDefinition read() {
    simdjson::dom::parser parser;
    element root;
    const auto error = parser.parse(def_.source).get(root);
    if (error != simdjson::SUCCESS) {
      fields_.bad("not valid JSON: {}", simdjson::error_message(error));
    }
    const object top = fields_.as_object(root, "the file");
    const object model = fields_.as_object(fields_.need(top, "model", "the file"), "model");
    check_model_kind(model);
    read_tokenizer_steps(top, fields_, def_);
    read_vocab(model);
    read_merges(model);
    read_added(top);
    read_character_rules(model);
    if (def_.byte_level) read_byte_ids();
    return std::move(def_);
  }

 private:
  void check_model_kind(const object& model) const {
    const std::string type = fields_.text_or_empty(model, "type");
    if (type != "BPE" && !(type.empty() && fields_.find(model, "merges"))) {
      fields_.bad(
          "model type {:?} is not supported, only \"BPE\" is; a sentencepiece .model file may "
          "serve "
          "instead",
          type);
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!fields_.text_or_empty(model, key).empty()) fields_.bad("model.{} is not supported", key);
    }
    if (const auto dropout = fields_.find(model, "dropout")) {
      double value = 0;
      if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
        fields_.bad("model.dropout is not supported: encoding must be repeatable");
      }
    }
  }

  // The text of a model token as this tokenizer keeps it. Spellings outside the byte alphabet
  // (added tokens listed in the vocabulary) cannot come out of merging.
  std::optional<std::string> own_text(std::string_view spelling) const {
    if (def_.byte_level) return alphabet_.bytes_of(spelling);
    return std::string(spelling);
  }

  void read_vocab(const object& model) {
    const object vocab = fields_.as_object(fields_.need(model, "vocab", "model"), "model.vocab");
    std::int64_t entries = 0;
    std::int64_t highest = -1;
    for (const auto& [token, value] : vocab) {
      const std::int64_t id = fields_.as_integer(value, "a token id");
      if (id < 0) fields_.bad("token {:?} has the id {}", token, id);
      ++entries;
      highest = std::max(highest, id);
    }
    check_highest(highest, entries);
    def_.tokens.resize(static_cast<std::size_t>(highest + 1));
    taken_.resize(def_.tokens.size(), false);
    def_.vocab.reserve(static_cast<std::size_t>(entries));
    for (const auto& [token, value] : vocab) {
      const std::int64_t id = fields_.as_integer(value, "a token id");
      const auto index = static_cast<std::size_t>(id);
      if (taken_[index]) fields_.bad("two tokens have the id {}; one is {:?}", id, token);
      taken_[index] = true;
      if (token.empty()) fields_.bad("the token of id {} is empty", id);
      auto text = own_text(token);
      if (text && !def_.vocab.emplace(*text, static_cast<std::int32_t>(id)).second) {
        fields_.bad("token {:?} occurs twice in model.vocab", token);
      }
      if (!text) literal_.emplace(token, static_cast<std::int32_t>(id));
      def_.tokens[index] = text ? std::move(*text) : std::string(token);
    }
  }

  void check_highest(std::int64_t highest, std::int64_t entries) const {
    if (highest >= entries + kMostHoles || highest > 0x7FFFFFF0) {
      fields_.bad("token id {} is too high for {} tokens", highest, entries);
    }
  }

  void read_merges(const object& model) {
    def_.ignore_merges = fields_.flag(model, "ignore_merges", false);
    const array merges = fields_.as_array(fields_.need(model, "merges", "model"), "model.merges");
    std::string joined;
    std::size_t number = 0;
    for (const element& merge : merges) {
      std::string_view left;
      std::string_view right;
      if (merge.is_string()) {
        const std::string_view line = fields_.as_text(merge, "a merge");
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != line.npos) {
          fields_.bad("merge {} must be two tokens, but is {:?}", number, line);
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        const array pair = fields_.as_array(merge, "a merge");
        if (pair.size() != 2) fields_.bad("merge {} must be two tokens", number);
        left = fields_.as_text(pair.at(0), "a merge's token");
        right = fields_.as_text(pair.at(1), "a merge's token");
      }
      const auto [left_id, left_text] = merge_part(left, number);
      const auto [right_id, right_text] = merge_part(right, number);
      joined.assign(left_text).append(right_text);
      const auto result = def_.vocab.find(joined);
      if (result == def_.vocab.end()) {
        fields_.bad("merge {} ({:?} with {:?}) gives a token that is not in model.vocab", number,
                    left, right);
      }
      def_.merges.push_back({left_id, right_id, result->second});
      if (++number > kMostMerges) fields_.bad("more than {} merges", kMostMerges);
    }
  }

  std::pair<std::int32_t, std::string> merge_part(std::string_view spelling,
                                                  std::size_t number) const {
    if (auto text = own_text(spelling)) {
      const auto found = def_.vocab.find(*text);
      if (found != def_.vocab.end()) return {found->second, std::move(*text)};
    }
    fields_.bad("merge {} uses {:?}, which is not in model.vocab", number, spelling);
  }

  // The id that model.vocab gives to an added token's text.
  std::optional<std::int32_t> model_id(std::string_view text) const {
    if (const auto found = literal_.find(text); found != literal_.end()) return found->second;
    const auto own = own_text(text);
    if (!own) return std::nullopt;
    const auto found = def_.vocab.find(*own);
    return found == def_.vocab.end() ? std::nullopt : std::optional(found->second);
  }

  void read_added(const object& top) {
    const auto list = fields_.find(top, "added_tokens");
    if (!list) return;
    const array tokens = fields_.as_array(*list, "added_tokens");
    auto entries = static_cast<std::int64_t>(taken_.size());
    for (const element& value : tokens) {
      const object entry = fields_.as_object(value, "an added token");
      const std::int64_t id = fields_.as_integer(fields_.need(entry, "id", "an added token"), "id");
      AddedToken token;
      token.text = fields_.as_text(fields_.need(entry, "content", "an added token"), "content");
      token.special = fields_.flag(entry, "special", false);
      token.normalized = fields_.flag(entry, "normalized", !token.special);
      token.strip_left = fields_.flag(entry, "lstrip", false);
      token.strip_right = fields_.flag(entry, "rstrip", false);
      if (token.text.empty()) fields_.bad("the added token of id {} is empty", id);
      if (fields_.flag(entry, "single_word", false)) {
        fields_.bad("added token {:?} with single_word is not supported", token.text);
      }
      if (token.normalized && (token.strip_left || token.strip_right)) {
        fields_.bad("added token {:?}: stripping with normalized is not supported", token.text);
      }
      if (id < 0) fields_.bad("added token {:?} has the id {}", token.text, id);
      check_highest(id, ++entries);
      place_added(id, token);
    }
  }

  void place_added(std::int64_t id, AddedToken& token) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= taken_.size()) {
      taken_.resize(index + 1, false);
      def_.tokens.resize(index + 1);
    }
    const auto known = model_id(token.text);
    if (known ? *known != id : taken_[index]) {
      fields_.bad("added token {:?} has the id {}, which model.vocab gives to something else",
                  token.text, id);
    }
    if (added_ids_.size() < taken_.size()) added_ids_.resize(taken_.size(), false);
    if (added_ids_[index] || !added_texts_.emplace(token.text, token.id).second) {
      fields_.bad("added token {:?} or its id {} occurs twice", token.text, id);
    }
    added_ids_[index] = true;
    taken_[index] = true;
    token.id = static_cast<std::int32_t>(id);
    def_.added.push_back(std::move(token));
  }

  void read_character_rules(const object& model) {
    def_.fuse_unknown = fields_.flag(model, "fuse_unk", false);
    def_.byte_fallback = fields_.flag(model, "byte_fallback", false);
    const std::string unknown = fields_.text_or_empty(model, "unk_token");
    if (def_.byte_level) return;  // every byte has a token there, nothing is unknown
    if (!unknown.empty()) {
      def_.unknown = model_id(unknown);
      if (!def_.unknown) fields_.bad("unk_token {:?} is not in model.vocab", unknown);
    }
    if (def_.byte_fallback) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const auto found = def_.vocab.find(fmt::format("<0x{:02X}>", byte));
        if (found != def_.vocab.end()) def_.byte_ids[byte] = found->second;
      }
    }
    const bool complete = std::all_of(def_.byte_ids.begin(), def_.byte_ids.end(),
                                      [](std::int32_t id) { return id >= 0; });
    if (!complete && !def_.unknown) {
      fields_.bad("neither unk_token nor a token for every byte: some text would be lost");
    }
  }

  void read_byte_ids() {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = def_.vocab.find(std::string(1, static_cast<char>(byte)));
      if (found == def_.vocab.end()) {
        fields_.bad("model.vocab has no token for the byte 0x{:02X}: some text would be lost",
                    byte);
      }
      def_.byte_ids[byte] = found->second;
    }
  }

  JsonFields fields_;
  ByteAlphabet alphabet_;
  BpeDefinition def_;
  std::vector<bool> taken_;
  std::vector<bool> added_ids_;
  VocabMap added_texts_;
  VocabMap literal_;  // tokens spelled outside the byte alphabet
};

}  // namespace

BpeDefinition read_tokenizer_json(std::string json, const std::string& origin) {
  return Reader(std::move(json), origin).read();
}

}  // namespace belay::data
