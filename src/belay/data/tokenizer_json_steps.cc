#include "belay/data/tokenizer_json_steps.h"

namespace belay::data {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr int kDeepestSequence = 16;

class StepReader {
 public:
  StepReader(const JsonFields& fields, BpeDefinition& definition)
      : fields_(fields), def_(definition) {}

  void read(const object& top) {
    read_pre_tokenizer(top);
    read_normalizer(top);
    read_decoder(top);
  }

 private:
  // A list of steps: one object, or a Sequence (possibly nested) of them under `list_key`.
  void flatten(const element& value, std::string_view what, std::string_view list_key,
               std::vector<object>& steps, int depth) const {
    if (depth > kDeepestSequence) fields_.bad("{} nests more than {} deep", what, kDeepestSequence);
    const object step = fields_.as_object(value, what);
    if (fields_.as_text(fields_.need(step, "type", what), "type") != "Sequence") {
      steps.push_back(step);
      return;
    }
    for (const element& part : fields_.as_array(fields_.need(step, list_key, what), list_key)) {
      flatten(part, what, list_key, steps, depth + 1);
    }
  }
  std::vector<object> steps_of(const object& top, std::string_view what,
                               std::string_view list_key) const {
    std::vector<object> steps;
    if (const auto value = fields_.find(top, what)) flatten(*value, what, list_key, steps, 0);
    return steps;
  }

  // {"String": s} or {"Regex": r}
  struct Pattern {
    std::string text;
    bool regex;
  };
  Pattern pattern_of(const object& step, std::string_view what) const {
    const object pattern = fields_.as_object(fields_.need(step, "pattern", what), "pattern");
    const auto text = fields_.find(pattern, "String");
    const element value = text ? *text : fields_.need(pattern, "Regex", "pattern");
    return {std::string(fields_.as_text(value, "pattern")), !text.has_value()};
  }

  void read_pre_tokenizer(const object& top) {
    std::vector<std::unique_ptr<WordSplitter>> parts;
    def_.byte_level = false;
    for (const object& step : steps_of(top, "pre_tokenizer", "pretokenizers")) {
      const std::string_view type =
          fields_.as_text(fields_.need(step, "type", "pre_tokenizer"), "type");
      if (def_.byte_level) fields_.bad("pre_tokenizer {:?} after ByteLevel is not supported", type);
      if (type == "ByteLevel") {
        def_.byte_level = true;
        if (fields_.flag(step, "add_prefix_space", true)) {
          if (!parts.empty())
            fields_.bad("ByteLevel with add_prefix_space after a split is not supported");
          def_.prefix = " ";
        }
        if (fields_.flag(step, "use_regex", true)) {
          parts.push_back(make_pattern_splitter(std::string(kGpt2Pattern), SplitMode::isolated,
                                                fields_.origin()));
        }
      } else if (type == "Split") {
        parts.push_back(read_split(step));
      } else if (type == "Digits") {
        parts.push_back(make_digit_splitter(fields_.flag(step, "individual_digits", false)));
      } else if (type == "Metaspace") {
        if (!parts.empty()) fields_.bad("Metaspace after another pre_tokenizer is not supported");
        read_metaspace(step, parts);
      } else {
        fields_.bad("pre_tokenizer type {:?} is not supported", type);
      }
    }
    def_.splitter = make_sequence_splitter(std::move(parts));
  }

  std::unique_ptr<WordSplitter> read_split(const object& step) const {
    Pattern pattern = pattern_of(step, "Split");
    const std::string_view behavior =
        fields_.as_text(fields_.need(step, "behavior", "Split"), "behavior");
    const bool invert = fields_.flag(step, "invert", false);
    const bool matches = (behavior == "Removed" || behavior == "removed") && invert;
    if (!matches && (invert || (behavior != "Isolated" && behavior != "isolated"))) {
      fields_.bad("Split with behavior {:?}{} is not supported", behavior,
                  invert ? " inverted" : "");
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
    return make_pattern_splitter(
        pattern.text, matches ? SplitMode::only_matches : SplitMode::isolated, fields_.origin());
  }

  void read_metaspace(const object& step, std::vector<std::unique_ptr<WordSplitter>>& parts) {
    metaspace_ = fields_.text_or_empty(step, "replacement");
    if (metaspace_.empty()) metaspace_ = "\u2581";
    std::string scheme = fields_.text_or_empty(step, "prepend_scheme");
    if (scheme.empty()) scheme = fields_.flag(step, "add_prefix_space", true) ? "always" : "never";
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      fields_.bad("Metaspace prepend_scheme {:?} is not known", scheme);
    }
    if (scheme != "never") def_.prefix = metaspace_;
    def_.prefix_first = scheme == "first";
    if (fields_.flag(step, "split", true)) parts.push_back(make_mark_splitter(metaspace_));
  }

  void read_normalizer(const object& top) {
    std::vector<std::unique_ptr<Normalizer>> parts;
    bool first = true;
    for (const object& step : steps_of(top, "normalizer", "normalizers")) {
      const std::string_view type =
          fields_.as_text(fields_.need(step, "type", "normalizer"), "type");
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
          fields_.bad(
              "normalizer Replace with a regular expression or an empty text is not supported");
        }
        parts.push_back(
            make_replace_normalizer(pattern.text, fields_.text_or_empty(step, "content")));
      } else if (type == "Prepend" && first) {
        def_.prepend = fields_.text_or_empty(step, "prepend");
      } else {
        fields_.bad("normalizer type {:?}{} is not supported", type,
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
      const std::string_view type = fields_.as_text(fields_.need(step, "type", "decoder"), "type");
      if (type == "Replace") {
        const Pattern pattern = pattern_of(step, "decoder");
        if (pattern.regex || pattern.text.empty()) {
          fields_.bad(
              "decoder Replace with a regular expression or an empty text is not supported");
        }
        def_.decode_replace.emplace_back(pattern.text, fields_.text_or_empty(step, "content"));
      } else if (type == "Metaspace") {
        std::string mark = fields_.text_or_empty(step, "replacement");
        if (mark.empty()) mark = "\u2581";
        def_.decode_replace.emplace_back(mark, " ");
        const std::string scheme = fields_.text_or_empty(step, "prepend_scheme");
        if (scheme != "never" && fields_.flag(step, "add_prefix_space", true))
          def_.decode_strip = 1;
      } else if (type == "Strip") {
        const std::int64_t start =
            fields_.as_integer(fields_.need(step, "start", "Strip"), "start");
        const std::int64_t stop = fields_.as_integer(fields_.need(step, "stop", "Strip"), "stop");
        if (fields_.text_or_empty(step, "content") != " " || start < 0 || start > 16 || stop != 0) {
          fields_.bad("decoder Strip is supported for up to 16 leading spaces only");
        }
        def_.decode_strip = static_cast<int>(start);
      } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
        fields_.bad("decoder type {:?} is not supported", type);
      }
    }
  }

  const JsonFields& fields_;
  BpeDefinition& def_;
  std::string metaspace_;
};

}  // namespace

void read_tokenizer_steps(const object& top, const JsonFields& fields, BpeDefinition& definition) {
  StepReader(fields, definition).read(top);
}

}  // namespace belay::data
