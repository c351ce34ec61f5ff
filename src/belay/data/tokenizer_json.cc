// Reads Hugging Face's tokenizer.json. Whatever would change the ids and is not understood is an
// error, never skipped.

#include <simdjson.h>

#include <algorithm>

#include "belay/base/error.h"
#include "belay/data/bpe_tokenizer.h"
#include "belay/data/byte_alphabet.h"
#include "belay/data/utf8.h"

namespace belay::data {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Ids may leave holes (real files do), but only so many: the table is sized by the highest id.
constexpr std::int64_t kMostHoles = 65536;
constexpr std::size_t kMostMerges = 16'777'216;
constexpr int kDeepestSequence = 16;

class Reader {
 public:
  Reader(std::string json, const std::string& origin) : origin_(origin) {
    def_.source = std::move(json);
    def_.origin = origin;
    def_.byte_ids.fill(-1);
  }

  BpeDefinition read() {
    simdjson::dom::parser parser;
    element root;
    const auto error = parser.parse(def_.source).get(root);
    if (error != simdjson::SUCCESS) {
      bad("not valid JSON: {}", simdjson::error_message(error));
    }
    const object top = as_object(root, "the file");
    const object model = as_object(need(top, "model", "the file"), "model");
    check_model_kind(model);
    read_pre_tokenizer(top);
    read_normalizer(top);
    read_decoder(top);
    read_vocab(model);
    read_merges(model);
    read_added(top);
    read_character_rules(model);
    if (def_.byte_level) read_byte_ids();
    return std::move(def_);
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::data, "{}: {}", origin_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Absent and null mean the same throughout this format.
  static std::optional<element> find(const object& from, std::string_view key) {
    element value;
    if (from.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  element need(const object& from, std::string_view key, std::string_view where) const {
    const auto value = find(from, key);
    if (!value) bad("{} lacks {:?}", where, key);
    return *value;
  }
  object as_object(const element& value, std::string_view what) const {
    object result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be an object", what);
    return result;
  }
  array as_array(const element& value, std::string_view what) const {
    array result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be a list", what);
    return result;
  }
  std::string_view as_text(const element& value, std::string_view what) const {
    std::string_view result;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be a string", what);
    return result;
  }
  std::int64_t as_integer(const element& value, std::string_view what) const {
    std::int64_t result = 0;
    if (value.get(result) != simdjson::SUCCESS) bad("{} must be an integer", what);
    return result;
  }
  bool flag(const object& from, std::string_view key, bool otherwise) const {
    const auto value = find(from, key);
    if (!value) return otherwise;
    bool result = false;
    if (value->get(result) != simdjson::SUCCESS) bad("{:?} must be true or false", key);
    return result;
  }
  std::string text_or_empty(const object& from, std::string_view key) const {
    const auto value = find(from, key);
    return value ? std::string(as_text(*value, key)) : std::string();
  }

  void check_model_kind(const object& model) const {
    const std::string type = text_or_empty(model, "type");
    if (type != "BPE" && !(type.empty() && find(model, "merges"))) {
      bad("model type {:?} is not supported, only \"BPE\" is; a sentencepiece .model file may "
          "serve "
          "instead",
          type);
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_or_empty(model, key).empty()) bad("model.{} is not supported", key);
    }
    if (const auto dropout = find(model, "dropout")) {
      double value = 0;
      if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
        bad("model.dropout is not supported: encoding must be repeatable");
      }
    }
  }

  // A list of steps: one object, or a Sequence (possibly nested) of them under `list_key`.
  void flatten(const element& value, std::string_view what, std::string_view list_key,
               std::vector<object>& steps, int depth) const {
    if (depth > kDeepestSequence) bad("{} nests more than {} deep", what, kDeepestSequence);
    const object step = as_object(value, what);
    if (as_text(need(step, "type", what), "type") != "Sequence") {
      steps.push_back(step);
      return;
    }
    for (const element& part : as_array(need(step, list_key, what), list_key)) {
      flatten(part, what, list_key, steps, depth + 1);
    }
  }
  std::vector<object> steps_of(const object& top, std::string_view what,
                               std::string_view list_key) const {
    std::vector<object> steps;
    if (const auto value = find(top, what)) flatten(*value, what, list_key, steps, 0);
    return steps;
  }

  // {"String": s} or {"Regex": r}
  struct Pattern {
    std::string text;
    bool regex;
  };
  Pattern pattern_of(const object& step, std::string_view what) const {
    const object pattern = as_object(need(step, "pattern", what), "pattern");
    const auto text = find(pattern, "String");
    const element value = text ? *text : need(pattern, "Regex", "pattern");
    return {std::string(as_text(value, "pattern")), !text.has_value()};
  }

  void read_pre_tokenizer(const object& top) {
    std::vector<std::unique_ptr<WordSplitter>> parts;
    def_.byte_level = false;
    for (const object& step : steps_of(top, "pre_tokenizer", "pretokenizers")) {
      const std::string_view type = as_text(need(step, "type", "pre_tokenizer"), "type");
      if (def_.byte_level) bad("pre_tokenizer {:?} after ByteLevel is not supported", type);
      if (type == "ByteLevel") {
        def_.byte_level = true;
        if (flag(step, "add_prefix_space", true)) {
          if (!parts.empty()) bad("ByteLevel with add_prefix_space after a split is not supported");
          def_.prefix = " ";
        }
        if (flag(step, "use_regex", true)) {
          parts.push_back(
              make_pattern_splitter(std::string(kGpt2Pattern), SplitMode::isolated, origin_));
        }
      } else if (type == "Split") {
        parts.push_back(read_split(step));
      } else if (type == "Digits") {
        parts.push_back(make_digit_splitter(flag(step, "individual_digits", false)));
      } else if (type == "Metaspace") {
        if (!parts.empty()) bad("Metaspace after another pre_tokenizer is not supported");
        read_metaspace(step, parts);
      } else {
        bad("pre_tokenizer type {:?} is not supported", type);
      }
    }
    def_.splitter = make_sequence_splitter(std::move(parts));
  }

  std::unique_ptr<WordSplitter> read_split(const object& step) const {
    Pattern pattern = pattern_of(step, "Split");
    const std::string_view behavior = as_text(need(step, "behavior", "Split"), "behavior");
    const bool invert = flag(step, "invert", false);
    const bool matches = (behavior == "Removed" || behavior == "removed") && invert;
    if (!matches && (invert || (behavior != "Isolated" && behavior != "isolated"))) {
      bad("Split with behavior {:?}{} is not supported", behavior, invert ? " inverted" : "");
    }
    if (!pattern.regex) {
      std::string quoted;
      for (const char c : pattern.text) {
        if (std::string_view(R"(\^$.|?*+()[]{}#-)").find(c) != std::string_view::npos) {
          quoted.push_back('\\');
        }
        quoted.push_back(c);
      }
      pattern.text = std::move(quoted);
    }
    return make_pattern_splitter(pattern.text,
                                 matches ? SplitMode::only_matches : SplitMode::isolated, origin_);
  }

  void read_metaspace(const object& step, std::vector<std::unique_ptr<WordSplitter>>& parts) {
    metaspace_ = text_or_empty(step, "replacement");
    if (metaspace_.empty()) metaspace_ = "\u2581";
    std::string scheme = text_or_empty(step, "prepend_scheme");
    if (scheme.empty()) scheme = flag(step, "add_prefix_space", true) ? "always" : "never";
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      bad("Metaspace prepend_scheme {:?} is not known", scheme);
    }
    if (scheme != "never") def_.prefix = metaspace_;
    def_.prefix_first = scheme == "first";
    if (flag(step, "split", true)) parts.push_back(make_mark_splitter(metaspace_));
  }

  void read_normalizer(const object& top) {
    std::vector<std::unique_ptr<Normalizer>> parts;
    bool first = true;
    for (const object& step : steps_of(top, "normalizer", "normalizers")) {
      const std::string_view type = as_text(need(step, "type", "normalizer"), "type");
      if (type == "NFC") {
        parts.push_back(make_unicode_normalizer(UnicodeForm::nfc));
      } else if (type == "NFD") {
        parts.push_back(make_unicode_normalizer(UnicodeForm::nfd));
      } else if (type == "NFKC") {
        parts.push_back(make_unicode_normalizer(UnicodeForm::nfkc));
      } else if (type == "NFKD") {
        parts.push_back(make_unicode_normalizer(UnicodeForm::nfkd));
      } else if (type == "Replace") {
        const Pattern pattern = pattern_of(step, "Replace");
        if (pattern.regex || pattern.text.empty()) {
          bad("normalizer Replace with a regular expression or an empty text is not supported");
        }
        parts.push_back(make_replace_normalizer(pattern.text, text_or_empty(step, "content")));
      } else if (type == "Prepend" && first) {
        def_.prepend = text_or_empty(step, "prepend");
      } else {
        bad("normalizer type {:?}{} is not supported", type,
            type == "Prepend" ? " after another" : "");
      }
      first = false;
    }
    if (!metaspace_.empty()) parts.push_back(make_replace_normalizer(" ", metaspace_));
    if (parts.size() == 1) {
      def_.normalizer = std::move(parts.front());
    } else if (!parts.empty()) {
      def_.normalizer = make_sequence_normalizer(std::move(parts));
    }
  }

  void read_decoder(const object& top) {
    for (const object& step : steps_of(top, "decoder", "decoders")) {
      const std::string_view type = as_text(need(step, "type", "decoder"), "type");
      if (type == "Replace") {
        const Pattern pattern = pattern_of(step, "decoder");
        if (pattern.regex || pattern.text.empty()) {
          bad("decoder Replace with a regular expression or an empty text is not supported");
        }
        def_.decode_replace.emplace_back(pattern.text, text_or_empty(step, "content"));
      } else if (type == "Metaspace") {
        std::string mark = text_or_empty(step, "replacement");
        if (mark.empty()) mark = "\u2581";
        def_.decode_replace.emplace_back(mark, " ");
        const std::string scheme = text_or_empty(step, "prepend_scheme");
        if (scheme != "never" && flag(step, "add_prefix_space", true)) def_.decode_strip = 1;
      } else if (type == "Strip") {
        const std::int64_t start = as_integer(need(step, "start", "Strip"), "start");
        const std::int64_t stop = as_integer(need(step, "stop", "Strip"), "stop");
        if (text_or_empty(step, "content") != " " || start < 0 || start > 16 || stop != 0) {
          bad("decoder Strip is supported for up to 16 leading spaces only");
        }
        def_.decode_strip = static_cast<int>(start);
      } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
        bad("decoder type {:?} is not supported", type);
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
    const object vocab = as_object(need(model, "vocab", "model"), "model.vocab");
    std::int64_t entries = 0;
    std::int64_t highest = -1;
    for (const auto& [token, value] : vocab) {
      const std::int64_t id = as_integer(value, "a token id");
      if (id < 0) bad("token {:?} has the id {}", token, id);
      ++entries;
      highest = std::max(highest, id);
    }
    check_highest(highest, entries);
    def_.tokens.resize(static_cast<std::size_t>(highest + 1));
    taken_.resize(def_.tokens.size(), false);
    def_.vocab.reserve(static_cast<std::size_t>(entries));
    for (const auto& [token, value] : vocab) {
      const std::int64_t id = as_integer(value, "a token id");
      const auto index = static_cast<std::size_t>(id);
      if (taken_[index]) bad("two tokens have the id {}; one is {:?}", id, token);
      taken_[index] = true;
      if (token.empty()) bad("the token of id {} is empty", id);
      auto text = own_text(token);
      if (text && !def_.vocab.emplace(*text, static_cast<std::int32_t>(id)).second) {
        bad("token {:?} occurs twice in model.vocab", token);
      }
      if (!text) literal_.emplace(token, static_cast<std::int32_t>(id));
      def_.tokens[index] = text ? std::move(*text) : std::string(token);
    }
  }

  void check_highest(std::int64_t highest, std::int64_t entries) const {
    if (highest >= entries + kMostHoles || highest > 0x7FFFFFF0) {
      bad("token id {} is too high for {} tokens", highest, entries);
    }
  }

  void read_merges(const object& model) {
    def_.ignore_merges = flag(model, "ignore_merges", false);
    const array merges = as_array(need(model, "merges", "model"), "model.merges");
    std::string joined;
    std::size_t number = 0;
    for (const element& merge : merges) {
      std::string_view left;
      std::string_view right;
      if (merge.is_string()) {
        const std::string_view line = as_text(merge, "a merge");
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != line.npos) {
          bad("merge {} must be two tokens, but is {:?}", number, line);
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        const array pair = as_array(merge, "a merge");
        if (pair.size() != 2) bad("merge {} must be two tokens", number);
        left = as_text(pair.at(0), "a merge's token");
        right = as_text(pair.at(1), "a merge's token");
      }
      const auto [left_id, left_text] = merge_part(left, number);
      const auto [right_id, right_text] = merge_part(right, number);
      joined.assign(left_text).append(right_text);
      const auto result = def_.vocab.find(joined);
      if (result == def_.vocab.end()) {
        bad("merge {} ({:?} with {:?}) gives a token that is not in model.vocab", number, left,
            right);
      }
      def_.merges.push_back({left_id, right_id, result->second});
      if (++number > kMostMerges) bad("more than {} merges", kMostMerges);
    }
  }

  std::pair<std::int32_t, std::string> merge_part(std::string_view spelling,
                                                  std::size_t number) const {
    if (auto text = own_text(spelling)) {
      const auto found = def_.vocab.find(*text);
      if (found != def_.vocab.end()) return {found->second, std::move(*text)};
    }
    bad("merge {} uses {:?}, which is not in model.vocab", number, spelling);
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
    const auto list = find(top, "added_tokens");
    if (!list) return;
    const array tokens = as_array(*list, "added_tokens");
    auto entries = static_cast<std::int64_t>(taken_.size());
    for (const element& value : tokens) {
      const object entry = as_object(value, "an added token");
      const std::int64_t id = as_integer(need(entry, "id", "an added token"), "id");
      AddedToken token;
      token.text = as_text(need(entry, "content", "an added token"), "content");
      token.special = flag(entry, "special", false);
      token.normalized = flag(entry, "normalized", !token.special);
      token.strip_left = flag(entry, "lstrip", false);
      token.strip_right = flag(entry, "rstrip", false);
      if (token.text.empty()) bad("the added token of id {} is empty", id);
      if (flag(entry, "single_word", false)) {
        bad("added token {:?} with single_word is not supported", token.text);
      }
      if (token.normalized && (token.strip_left || token.strip_right)) {
        bad("added token {:?}: stripping with normalized is not supported", token.text);
      }
      if (id < 0) bad("added token {:?} has the id {}", token.text, id);
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
      bad("added token {:?} has the id {}, which model.vocab gives to something else", token.text,
          id);
    }
    for (const AddedToken& other : def_.added) {
      if (other.text == token.text || other.id == id) {
        bad("added tokens {:?} and {:?} clash on the id {}", other.text, token.text, id);
      }
    }
    taken_[index] = true;
    token.id = static_cast<std::int32_t>(id);
    def_.added.push_back(std::move(token));
  }

  void read_character_rules(const object& model) {
    def_.fuse_unknown = flag(model, "fuse_unk", false);
    def_.byte_fallback = flag(model, "byte_fallback", false);
    const std::string unknown = text_or_empty(model, "unk_token");
    if (def_.byte_level) return;  // every byte has a token there, nothing is unknown
    if (!unknown.empty()) {
      def_.unknown = model_id(unknown);
      if (!def_.unknown) bad("unk_token {:?} is not in model.vocab", unknown);
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
      bad("neither unk_token nor a token for every byte: some text would be lost");
    }
  }

  void read_byte_ids() {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = def_.vocab.find(std::string(1, static_cast<char>(byte)));
      if (found == def_.vocab.end()) {
        bad("model.vocab has no token for the byte 0x{:02X}: some text would be lost", byte);
      }
      def_.byte_ids[byte] = found->second;
    }
  }

  std::string origin_;
  ByteAlphabet alphabet_;
  BpeDefinition def_;
  std::string metaspace_;
  std::vector<bool> taken_;
  VocabMap literal_;  // tokens spelled outside the byte alphabet
};

}  // namespace

BpeDefinition read_tokenizer_json(std::string json, const std::string& origin) {
  return Reader(std::move(json), origin).read();
}

}  // namespace belay::data
