#pragma once
// meta.json of a token store.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace belay::data {

struct StoreMeta {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t vocab_size = 0;  // 0: not known
  std::int64_t max_id = 0;
  std::int64_t end_of_document = -1;  // the id, -1: none
  bool append_eod = false;
  std::int64_t pad_id = 0;   // what padding positions are filled with; counts in nothing
  std::int64_t row_len = 0;  // rows.bin and pieces.bin are for this row length; 0: there are none
  std::int64_t rows = 0;
  std::string packing;    // of the rows, for people; empty: there are none
  std::string tokenizer;  // file name inside the store; empty: none was carried along
  std::vector<std::pair<std::string, std::int64_t>> counters;  // of packing, for people
};

std::string encode_meta(const StoreMeta& meta);
// Error(data) names `path` and the key that is missing or wrong.
StoreMeta parse_meta(const std::string& text, const std::string& path);

}  // namespace belay::data
