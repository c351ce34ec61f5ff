#pragma once
// What packing met: everything that was dropped, cut or odd has a number.

#include <array>
#include <cstdint>
#include <utility>

namespace belay::data {

struct PackCounters {
  std::int64_t files = 0;
  std::int64_t files_skipped = 0;  // in a directory, with a name of no known kind
  std::int64_t bytes_read = 0;     // after decompression
  std::int64_t text_bytes = 0;     // given to the tokenizer
  std::int64_t lines = 0;          // of JSONL files
  std::int64_t lines_blank = 0;
  std::int64_t lines_bad = 0;
  std::int64_t lines_too_long = 0;
  std::int64_t documents_empty = 0;         // dropped: no text or no tokens
  std::int64_t documents_cut = 0;           // places where a long document was cut for tokenising
  std::int64_t documents_invalid_utf8 = 0;  // parts with bytes that are not UTF-8, kept
  std::int64_t special_text_seen = 0;       // text that reads like a special token
  std::int64_t byte_order_marks = 0;        // removed from the start of files

  static constexpr std::array<std::pair<const char*, std::int64_t PackCounters::*>, 13> fields() {
    return {{{"files", &PackCounters::files},
             {"files_skipped", &PackCounters::files_skipped},
             {"bytes_read", &PackCounters::bytes_read},
             {"text_bytes", &PackCounters::text_bytes},
             {"lines", &PackCounters::lines},
             {"lines_blank", &PackCounters::lines_blank},
             {"lines_bad", &PackCounters::lines_bad},
             {"lines_too_long", &PackCounters::lines_too_long},
             {"documents_empty", &PackCounters::documents_empty},
             {"documents_cut", &PackCounters::documents_cut},
             {"documents_invalid_utf8", &PackCounters::documents_invalid_utf8},
             {"special_text_seen", &PackCounters::special_text_seen},
             {"byte_order_marks", &PackCounters::byte_order_marks}}};
  }
  void add(const PackCounters& other) {
    for (const auto& [name, field] : fields()) this->*field += other.*field;
  }
};

}  // namespace belay::data
