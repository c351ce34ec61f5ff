#include "belay/data/word_splitter.h"

#include "belay/data/char_class.h"
#include "belay/data/regex_splitter.h"

namespace belay::data {

namespace {

// What the hand-written scanners share: runs of one class, and the rules for white space.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(char_classes()) {}

  [[nodiscard]] bool done(std::size_t at) const { return at >= text_.size(); }
  [[nodiscard]] unsigned char byte(std::size_t at) const {
    return at < text_.size() ? static_cast<unsigned char>(text_[at]) : 0;
  }
  [[nodiscard]] CharClasses::Classified at(std::size_t at) const { return classes_.at(text_, at); }
  // End of the run of `kind` that contains `at`.
  [[nodiscard]] std::size_t run_end(std::size_t at, CharClass kind) const {
    while (!done(at)) {
      const auto [next, length] = this->at(at);
      if (next != kind) break;
      at += length;
    }
    return at;
  }

  // Length of 's 't 're 've 'm 'll 'd after an apostrophe at `at`, 0 if none.
  template <bool kAnyCase>
  [[nodiscard]] std::size_t contraction(std::size_t at) const {
    if (byte(at) != '\'') return 0;
    const auto letter = [&](std::size_t i) {
      const unsigned char c = byte(at + i);
      return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<unsigned char>(c + 32) : c;
    };
    const unsigned char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    // Case folding makes the long s (U+017F) another spelling of s.
    if (kAnyCase && first == 0xC5 && byte(at + 2) == 0xBF) return 3;
    const unsigned char second = letter(2);
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    return 0;
  }

  // White space at `at`: \s+(?!\S)|\s+ leaves the last blank of a run to the word that follows it;
  // with kBreaks, \s*[\r\n]+ first takes all up to the last line break.
  template <bool kBreaks>
  [[nodiscard]] std::size_t space_end(std::size_t at) const {
    std::size_t end = at;
    std::size_t last = at;         // start of the last character of the run
    std::size_t after_break = at;  // end of the last line break in it
    while (!done(end)) {
      const auto [kind, length] = this->at(end);
      if (!is_space(kind)) break;
      last = end;
      end += length;
      if (kind == CharClass::newline) after_break = end;
    }
    if (kBreaks && after_break > at) return after_break;
    return done(end) || last == at ? end : last;
  }

 private:
  std::string_view text_;
  const CharClasses& classes_;
};

class Gpt2Splitter final : public WordSplitter {
 public:
  void split(std::string_view text, WordSink sink) const override {
    const Scanner scan(text);
    for (std::size_t at = 0; !scan.done(at);) {
      const std::size_t end = word_end(scan, at);
      sink(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  static std::size_t word_end(const Scanner& scan, std::size_t at) {
    if (const std::size_t length = scan.contraction<false>(at)) return at + length;
    std::size_t start = at;
    if (scan.byte(at) == ' ' && !scan.done(at + 1)) ++start;
    const auto [kind, length] = scan.at(start);
    if (is_space(kind)) return scan.space_end<false>(at);
    return scan.run_end(start + length, kind);
  }
};

// kDigits: the most digits in one word.
template <int kDigits>
class Cl100kSplitter final : public WordSplitter {
 public:
  void split(std::string_view text, WordSink sink) const override {
    const Scanner scan(text);
    for (std::size_t at = 0; !scan.done(at);) {
      const std::size_t end = word_end(scan, at);
      sink(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  static std::size_t word_end(const Scanner& scan, std::size_t at) {
    const auto [kind, length] = scan.at(at);
    if (kind == CharClass::letter) return scan.run_end(at + length, CharClass::letter);
    if (kind == CharClass::number) return number_end(scan, at + length);
    if (const std::size_t taken = scan.contraction<true>(at)) return at + taken;
    const std::size_t next = at + length;
    const bool more = !scan.done(next);
    const auto following = more ? scan.at(next) : CharClasses::Classified{CharClass::space, 0};
    if (kind != CharClass::newline && more && following.kind == CharClass::letter) {
      return scan.run_end(next + following.length, CharClass::letter);
    }
    if (kind == CharClass::other) return symbols_end(scan, next);
    if (scan.byte(at) == ' ' && more && following.kind == CharClass::other) {
      return symbols_end(scan, next + following.length);
    }
    return scan.space_end<true>(at);
  }

  static std::size_t number_end(const Scanner& scan, std::size_t at) {
    for (int digits = 1; digits < kDigits && !scan.done(at); ++digits) {
      const auto [kind, length] = scan.at(at);
      if (kind != CharClass::number) break;
      at += length;
    }
    return at;
  }

  static std::size_t symbols_end(const Scanner& scan, std::size_t at) {
    return scan.run_end(scan.run_end(at, CharClass::other), CharClass::newline);
  }
};

class DigitSplitter final : public WordSplitter {
 public:
  explicit DigitSplitter(bool individual) : individual_(individual) {}
  void split(std::string_view text, WordSink sink) const override {
    const Scanner scan(text);
    std::size_t start = 0;
    bool in_number = false;
    for (std::size_t at = 0; !scan.done(at);) {
      const auto [kind, length] = scan.at(at);
      const bool number = kind == CharClass::number;
      if (at > start && (number != in_number || (number && individual_))) {
        sink(text.substr(start, at - start));
        start = at;
      }
      in_number = number;
      at += length;
    }
    if (start < text.size()) sink(text.substr(start));
  }

 private:
  bool individual_;
};

class MarkSplitter final : public WordSplitter {
 public:
  explicit MarkSplitter(std::string mark) : mark_(std::move(mark)) {}
  void split(std::string_view text, WordSink sink) const override {
    std::size_t start = 0;
    while (start < text.size()) {
      const std::size_t from = text.substr(start).starts_with(mark_) ? start + mark_.size() : start;
      const std::size_t next = std::min(text.find(mark_, from), text.size());
      sink(text.substr(start, next - start));
      start = next;
    }
  }

 private:
  std::string mark_;
};

class SequenceSplitter final : public WordSplitter {
 public:
  explicit SequenceSplitter(std::vector<std::unique_ptr<WordSplitter>> parts)
      : parts_(std::move(parts)) {}
  void split(std::string_view text, WordSink sink) const override { split_from(0, text, sink); }

 private:
  void split_from(std::size_t part, std::string_view text, WordSink sink) const {
    if (part == parts_.size()) {
      if (!text.empty()) sink(text);
      return;
    }
    parts_[part]->split(text, [&](std::string_view piece) { split_from(part + 1, piece, sink); });
  }

  std::vector<std::unique_ptr<WordSplitter>> parts_;
};

}  // namespace

std::unique_ptr<WordSplitter> make_pattern_splitter(const std::string& pattern, SplitMode mode,
                                                    const std::string& where) {
  // These patterns match every character, so the mode makes no difference to them.
  if (pattern == kGpt2Pattern) return std::make_unique<Gpt2Splitter>();
  if (pattern == kQwenPattern) return std::make_unique<Cl100kSplitter<1>>();
  if (pattern == kLlama3Pattern) return std::make_unique<Cl100kSplitter<3>>();
  return make_regex_splitter(pattern, mode, where);
}

std::unique_ptr<WordSplitter> make_digit_splitter(bool individual) {
  return std::make_unique<DigitSplitter>(individual);
}

std::unique_ptr<WordSplitter> make_mark_splitter(const std::string& mark) {
  return std::make_unique<MarkSplitter>(mark);
}

std::unique_ptr<WordSplitter> make_sequence_splitter(
    std::vector<std::unique_ptr<WordSplitter>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<SequenceSplitter>(std::move(parts));
}

}  // namespace belay::data
