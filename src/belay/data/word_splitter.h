#pragma once
// Pre-tokenisation: cuts valid UTF-8 into the words inside which byte-pair encoding merges.

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace belay::data {

// A borrowed callable that takes one word; lives as long as the call it is passed to.
class WordSink {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, WordSink>)
      WordSink(F&& function)  // NOLINT: takes anything that can be called
      : context_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* context, std::string_view word) {
          (*static_cast<std::remove_reference_t<F>*>(context))(word);
        }) {}
  void operator()(std::string_view word) const { call_(context_, word); }

 private:
  void* context_;
  void (*call_)(void*, std::string_view);
};

class WordSplitter {
 public:
  WordSplitter() = default;
  WordSplitter(const WordSplitter&) = delete;
  WordSplitter& operator=(const WordSplitter&) = delete;
  virtual ~WordSplitter() = default;
  // Calls `sink` with consecutive non-empty pieces of `text` (valid UTF-8), in order. Unless the
  // splitter is said to drop text, the pieces cover it.
  virtual void split(std::string_view text, WordSink sink) const = 0;
};

// The patterns known by heart; each has a scanner many times faster than a general regex engine.
// GPT-2 is of Radford et al. 2019; its descendants were published with cl100k and Qwen.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Every digit alone.
inline constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Digits in groups of three; also cl100k.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What happens to the pieces a pattern matches, and to those between.
enum class SplitMode {
  isolated,     // matches and the text between them are words
  only_matches  // matches are words, the text between is dropped
};

// Error(data) if the pattern is not a valid regular expression. `where` names the file in errors.
std::unique_ptr<WordSplitter> make_pattern_splitter(const std::string& pattern, SplitMode mode,
                                                    const std::string& where);

// Cuts around numbers (\p{N}): each digit alone, or runs of digits.
std::unique_ptr<WordSplitter> make_digit_splitter(bool individual);

// A word begins at each occurrence of `mark` (not empty).
std::unique_ptr<WordSplitter> make_mark_splitter(const std::string& mark);

// Each splitter cuts the pieces of the one before it; with none, the whole text is one word.
std::unique_ptr<WordSplitter> make_sequence_splitter(
    std::vector<std::unique_ptr<WordSplitter>> parts);

}  // namespace belay::data
