#include "belay/data/sentence_splitter.h"

#include <unicode/brkiter.h>
#include <unicode/filteredbrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "belay/base/error.h"

namespace belay::data {
namespace {

// Small enough that the block's copies stay in the second-level cache.
constexpr std::size_t kBlock = std::size_t{1} << 16;

// Shortest line that may be a wrapped one, in UTF-16 units.
constexpr std::size_t kWrapped = 40;

void check_icu(UErrorCode status, const char* what) {
  if (U_FAILURE(status)) fail(ExitCode::failure, "ICU: {}: {}", what, u_errorName(status));
}

bool is_blank(char16_t unit) {
  if (unit < 0x80) return unit == ' ' || (unit >= '\t' && unit <= '\r');
  return u_isUWhiteSpace(unit) != 0;  // all white space lies in the basic plane
}

// Lines that end in [begin, end) of units that are all blank.
int line_feeds(const std::u16string& units, std::size_t begin, std::size_t end) {
  int count = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const char16_t unit = units[i];
    if (unit == u'\n' || unit == u'\u0085' || unit == u'\u2028') ++count;
    if (unit == u'\r' && (i + 1 == end || units[i + 1] != u'\n')) ++count;
    if (unit == u'\u2029') count += 2;
  }
  return count;
}

// Sentences do not reach over a line feed as far as the rules go, so text is cut behind one.
std::size_t block_size(std::string_view text) {
  if (text.size() <= kBlock) return text.size();
  const std::size_t feed = text.rfind('\n', kBlock - 1);
  if (feed != std::string_view::npos) return feed + 1;
  std::size_t size = kBlock;
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U; ++i) --size;
  return size;
}

}  // namespace

struct SentenceSplitter::Iterator {
  std::unique_ptr<icu::BreakIterator> breaks;
  icu::BreakIterator* rules = nullptr;  // below `breaks`, which owns it; knows why a sentence ends
  UText text = UTEXT_INITIALIZER;

  Iterator() {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Locale locale = icu::Locale::getEnglish();
    const std::unique_ptr<icu::FilteredBreakIteratorBuilder> builder(
        icu::FilteredBreakIteratorBuilder::createInstance(locale, status));
    check_icu(status, "no list of abbreviations");
    rules = icu::BreakIterator::createSentenceInstance(locale, status);
    check_icu(status, "no sentence rules");
    breaks.reset(builder->build(rules, status));
    check_icu(status, "no sentence rules");
  }
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;
  ~Iterator() { utext_close(&text); }

  void set(const std::u16string& units) {
    UErrorCode status = U_ZERO_ERROR;
    utext_openUChars(&text, units.data(), static_cast<std::int64_t>(units.size()), &status);
    breaks->setText(&text, status);
    check_icu(status, "cannot read text");
  }
};

SentenceSplitter::SentenceSplitter() : iterator_(std::make_unique<Iterator>()) {}
SentenceSplitter::~SentenceSplitter() = default;

void SentenceSplitter::split(std::string_view text, std::vector<SentenceEnd>& ends) {
  ends.clear();
  open_.reset();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t size = block_size(text.substr(begin));
    split_block(text, begin, size, ends);
    begin += size;
  }
  if (open_ && open_->line_feeds > 0) settle(0, ends);
}

void SentenceSplitter::split_block(std::string_view text, std::size_t begin, std::size_t size,
                                   std::vector<SentenceEnd>& ends) {
  units_.clear();
  offsets_.clear();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data() + begin);
  const auto length = static_cast<std::int32_t>(size);
  for (std::int32_t at = 0; at < length;) {
    const auto start = static_cast<std::uint32_t>(at);
    UChar32 code = bytes[at];
    if (code < 0x80) {
      ++at;
    } else {
      U8_NEXT_OR_FFFD(bytes, at, length, code);
    }
    if (code <= 0xFFFF) {
      units_.push_back(static_cast<char16_t>(code));
    } else {
      units_.push_back(U16_LEAD(code));
      offsets_.push_back(start);
      units_.push_back(U16_TRAIL(code));
    }
    offsets_.push_back(start);
  }
  offsets_.push_back(static_cast<std::uint32_t>(size));

  iterator_->set(units_);
  std::size_t from = 0;
  for (std::int32_t next = iterator_->breaks->next(); next != icu::BreakIterator::DONE;
       next = iterator_->breaks->next()) {
    const auto to = static_cast<std::size_t>(next);
    const bool finished = iterator_->rules->getRuleStatus() < UBRK_SENTENCE_SEP;
    add(from, to, finished, begin, ends);
    from = to;
  }
  const bool cut = begin + size < text.size() && text[begin + size - 1] != '\n';
  if (cut) open_.reset();
}

// A sentence as ICU sees it, which may be blank: units [begin, end).
void SentenceSplitter::add(std::size_t begin, std::size_t end, bool finished, std::size_t offset,
                           std::vector<SentenceEnd>& ends) {
  const auto first = units_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = units_.begin() + static_cast<std::ptrdiff_t>(end);
  const auto text = std::find_if_not(first, last, is_blank);
  if (text == last) {
    if (open_) {
      open_->end.end = offset + offsets_[end];
      open_->line_feeds += line_feeds(units_, begin, end);
    }
    return;
  }
  const auto at = static_cast<std::size_t>(text - units_.begin());
  UChar32 next = 0;
  U16_GET(units_.data(), 0, at, units_.size(), next);
  settle(static_cast<std::uint32_t>(next), ends);
  std::size_t stop = end;
  while (is_blank(units_[stop - 1])) --stop;
  // Only a line of some length can be one that was wrapped.
  std::size_t line = stop;
  while (line > 0 && stop - line < kWrapped && units_[line - 1] != u'\n') --line;
  open_ = Open{.end = {.text_end = offset + offsets_[stop], .end = offset + offsets_[end]},
               .line_feeds = line_feeds(units_, stop, end),
               .finished = finished || stop - line < kWrapped};
}

// `next` is the first character of what follows the open sentence.
void SentenceSplitter::settle(std::uint32_t next, std::vector<SentenceEnd>& ends) {
  if (!open_) return;
  const bool goes_on =
      !open_->finished && open_->line_feeds == 1 && u_islower(static_cast<UChar32>(next)) != 0;
  open_->end.paragraph = open_->line_feeds > 0;
  if (!goes_on) ends.push_back(open_->end);
  open_.reset();
}

}  // namespace belay::data
