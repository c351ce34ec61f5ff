#pragma once
// Remembers the ids of short words. Natural text repeats few words often, so most words skip the
// merging. Fixed size, one slot a hash value, the newest word wins; one owner at a time.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace belay::data {

class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 30;  // bytes
  static constexpr std::size_t kMostIds = 8;

  // A slot fills one cache line.
  struct Slot {
    std::uint8_t length = 0;  // 0: empty
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word{};
    std::array<std::int32_t, kMostIds> ids{};

    [[nodiscard]] bool holds(std::string_view text) const {
      return length == text.size() && std::memcmp(word.data(), text.data(), text.size()) == 0;
    }
  };

  WordCache() : slots_(kSlots) {}
  // The slot of `word`, which has 1 to kLongestWord bytes.
  [[nodiscard]] Slot& slot(std::string_view word);
  static void store(Slot& slot, std::string_view word, std::span<const std::int32_t> ids);

 private:
  static constexpr std::size_t kSlots = 32768;  // 2 MiB
  std::vector<Slot> slots_;
};

}  // namespace belay::data
