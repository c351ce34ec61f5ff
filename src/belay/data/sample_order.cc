#include "belay/data/sample_order.h"

#include <bit>

#include "belay/base/check.h"
#include "belay/base/philox.h"

namespace belay::data {
namespace {
// Four rounds suffice for a pseudo-random permutation in theory; small domains profit from more.
constexpr std::uint32_t kRounds = 6;
// Sets the order's draws apart from every other use of the seed.
constexpr std::uint32_t kStream = 0x6F726472U;
}  // namespace

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t samples)
    : seed_(seed), samples_(samples) {
  BELAY_CHECK(samples > 0);
  const auto bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(samples - 1)));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

std::int64_t SampleOrder::at(std::int64_t position) const {
  BELAY_CHECK(position >= 0);
  const auto samples = static_cast<std::uint64_t>(samples_);
  const std::uint64_t epoch = static_cast<std::uint64_t>(position) / samples;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  // Philox's counter carries (half, epoch); the round and the epoch's high bits share a word.
  const RandomKey base{.seed = seed_, .step = static_cast<std::uint32_t>(epoch), .stream = 0};
  const auto epoch_high = static_cast<std::uint32_t>(epoch >> 32);

  std::uint64_t value = static_cast<std::uint64_t>(position) % samples;
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      RandomKey key = base;
      key.stream = kStream ^ (round << 28) ^ epoch_high;
      const std::uint64_t mixed = random_block(key, right)[0] & mask;
      const std::uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= samples);
  return static_cast<std::int64_t>(value);
}

}  // namespace belay::data
