#pragma once
// SentenceSplitter: where sentences end in running text, by ICU's sentence rules (Unicode Standard
// Annex #29, with CLDR's list of English abbreviations), which serve Chinese as well.
//
// Two rules are added. Blank lines belong to the sentence before them. And a line of 40 or more
// characters that a line in lower case follows ends nothing by itself: text may be wrapped.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belay::data {

// White space between two sentences, in bytes: [text_end, end). A cut anywhere in it, its ends
// included, divides no sentence.
struct SentenceEnd {
  std::size_t text_end = 0;
  std::size_t end = 0;
  bool paragraph = false;  // a line ends here
};

class SentenceSplitter {
 public:
  SentenceSplitter();
  SentenceSplitter(const SentenceSplitter&) = delete;
  SentenceSplitter& operator=(const SentenceSplitter&) = delete;
  ~SentenceSplitter();

  // The ends of the sentences of `text`, rising. Any bytes will do; those that are not UTF-8 are
  // taken for letters of no script. The end of the text counts if it is the end of a line: other
  // text may go on. Lines over 64 KiB are looked at in parts, and a part's end is no sentence's.
  void split(std::string_view text, std::vector<SentenceEnd>& ends);

 private:
  struct Iterator;
  struct Open {  // a sentence that is known to end, unless what follows says otherwise
    SentenceEnd end;
    int line_feeds = 0;
    bool finished = false;  // whatever follows a single line feed
  };

  void split_block(std::string_view text, std::size_t begin, std::size_t size,
                   std::vector<SentenceEnd>& ends);
  void add(std::size_t begin, std::size_t end, bool finished, std::size_t offset,
           std::vector<SentenceEnd>& ends);
  void settle(std::uint32_t next, std::vector<SentenceEnd>& ends);

  std::unique_ptr<Iterator> iterator_;
  std::u16string units_;                // the block in UTF-16
  std::vector<std::uint32_t> offsets_;  // of each unit in the block, and the block's size
  std::optional<Open> open_;
};

}  // namespace belay::data
