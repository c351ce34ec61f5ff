#include "belay/data/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "belay/base/error.h"

namespace belay::data {
namespace {

struct FreePattern {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Bounds the time one match may take; ordinary patterns need a few dozen steps a word.
constexpr std::uint32_t kMatchLimit = 1'000'000;
constexpr std::size_t kLongestPattern = 16384;  // bytes

std::string message_of(int code) {
  std::string buffer(256, '\0');
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer.data()), buffer.size());
  return buffer.c_str();
}

class RegexSplitter final : public WordSplitter {
 public:
  RegexSplitter(const std::string& pattern, SplitMode mode, std::string where)
      : mode_(mode), where_(std::move(where)), context_(pcre2_match_context_create(nullptr)) {
    if (pattern.size() > kLongestPattern) {
      fail(ExitCode::data, "{}: a pre-tokenizer pattern of {} bytes; at most {} are accepted",
           where_, pattern.size(), kLongestPattern);
    }
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (code_ == nullptr) {
      fail(ExitCode::data, "{}: the pre-tokenizer pattern {:?} is not understood at byte {}: {}",
           where_, pattern, offset, message_of(error));
    }
    // Without a JIT for this machine matching falls back to the interpreter: slower, same result.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    if (context_ == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), kMatchLimit);
  }

  void split(std::string_view text, WordSink sink) const override {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (match == nullptr) throw std::bad_alloc();
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    std::size_t word = 0;  // where the text not yet handed out begins
    std::size_t from = 0;  // where the next match is looked for
    std::uint32_t options = PCRE2_NO_UTF_CHECK;
    while (from < text.size()) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), from, options, match.get(), context_.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        fail(ExitCode::data, "{}: the pre-tokenizer pattern fails on the text at byte {}: {}",
             where_, from, message_of(found));
      }
      const std::size_t begin = bounds[0];
      const std::size_t end = bounds[1];
      if (begin < from || end < begin) {
        fail(ExitCode::data, "{}: the pre-tokenizer pattern uses \\K, which is not supported",
             where_);
      }
      if (mode_ == SplitMode::isolated && begin > word) sink(text.substr(word, begin - word));
      if (end > begin) sink(text.substr(begin, end - begin));
      word = end;
      // An empty match would repeat for ever: look for the next one that is not empty.
      options = PCRE2_NO_UTF_CHECK | (end == begin ? PCRE2_NOTEMPTY_ATSTART : 0U);
      from = end;
    }
    if (mode_ == SplitMode::isolated && word < text.size()) sink(text.substr(word));
  }

 private:
  SplitMode mode_;
  std::string where_;
  std::unique_ptr<pcre2_code, FreePattern> code_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
};

}  // namespace

std::unique_ptr<WordSplitter> make_regex_splitter(const std::string& pattern, SplitMode mode,
                                                  const std::string& where) {
  return std::make_unique<RegexSplitter>(pattern, mode, where);
}

}  // namespace belay::data
