#pragma once
// Channels and status lines in memory that all ranks of a host share: threads of one process, or
// processes with a common mapping. Holds no pointers, so it may be mapped anywhere.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "belay/comm/schedule.h"
#include "belay/comm/transport.h"

namespace belay::comm {

inline constexpr std::size_t kLine = 64;

struct alignas(kLine) ChannelSlot {
  std::atomic<std::uint64_t> number;  // of the message it holds
  std::uint64_t address;              // shared address, or kPosted
  std::uint64_t bytes;
  std::uint64_t sent_ns;
  Signature signature;
};
static_assert(sizeof(ChannelSlot) == kLine);
inline constexpr std::uint64_t kPosted = ~std::uint64_t{0};

struct Channel {
  std::array<ChannelSlot, kChannelSlots> slots;
  alignas(kLine) std::atomic<std::uint64_t> used;
};

struct alignas(kLine) StatusLine {
  static constexpr std::uint32_t kGone = 1U << 31;

  std::atomic<std::uint64_t> entered;
  std::atomic<std::uint64_t> finished;
  std::atomic<std::uint32_t> state;  // RankStatus::State, and whether it is gone
  // The call last entered, in words that may be read while they change; `version` is odd meanwhile.
  std::atomic<std::uint32_t> version;
  std::array<std::atomic<std::uint64_t>, 4> call;
  alignas(kLine) std::atomic<std::uint64_t> beat;
};

struct alignas(kLine) Reason {
  std::atomic<std::uint32_t> state;  // 0 none, 1 being written, 2 there
  std::uint32_t code;
  std::array<char, 1016> text;
};

// A view of the block; all of it begins as zeros.
class SharedChannels {
 public:
  static std::size_t bytes_for(int ranks);
  // Of these, what messages are posted in, at the end; need not be zeros.
  static std::size_t post_area(int ranks);
  // What a channel can post; smaller where there are many.
  static std::size_t post_bytes_for(int ranks);
  // What every channel can post where hosts have different numbers of ranks. host_of: of each rank.
  static std::size_t least_post_bytes(std::span<const int> host_of);

  SharedChannels(void* memory, int ranks);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] std::size_t post_bytes() const { return post_bytes_; }
  [[nodiscard]] Channel& channel(int from, int to, int lane) const;
  // Where the message in a slot of lane 0 is posted.
  [[nodiscard]] std::byte* posted(int from, int to, std::size_t slot) const;
  [[nodiscard]] StatusLine& line(int rank) const;
  [[nodiscard]] RankStatus status(int rank) const;
  void enter(int rank, const Signature& call) const;
  bool raise(std::string_view reason, ExitCode code) const;
  [[nodiscard]] bool raised() const { return reason_->state.load(std::memory_order_acquire) == 2; }
  [[nodiscard]] std::string reason() const;
  [[nodiscard]] ExitCode reason_code() const {
    return raised() ? static_cast<ExitCode>(reason_->code) : ExitCode::ok;
  }

 private:
  int ranks_;
  std::size_t post_bytes_;
  Reason* reason_;
  StatusLine* lines_;
  Channel* channels_;
  std::byte* posts_;
};

}  // namespace belay::comm
