#pragma once
// Words by a regular expression (PCRE2, just-in-time compiled), for patterns without a scanner of
// their own.

#include "belay/data/word_splitter.h"

namespace belay::data {

// Error(data) if the pattern does not compile; split() raises Error(data) when matching exceeds
// PCRE2's limits. Always uses PCRE2, also for the patterns make_pattern_splitter() knows.
std::unique_ptr<WordSplitter> make_regex_splitter(const std::string& pattern, SplitMode mode,
                                                  const std::string& where);

}  // namespace belay::data
