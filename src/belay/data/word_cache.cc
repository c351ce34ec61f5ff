#include "belay/data/word_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace belay::data {

WordCache::Slot& WordCache::slot(std::string_view word) {
  return slots_[XXH3_64bits(word.data(), word.size()) & (kSlots - 1)];
}

void WordCache::store(Slot& slot, std::string_view word, std::span<const std::int32_t> ids) {
  if (ids.size() > kMostIds) return;
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace belay::data
