#include "belay/comm/shared_channels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace belay::comm {
namespace {

std::size_t pairs(int ranks) {
  return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks);
}

using CallWords = std::array<std::uint64_t, 4>;
static_assert(sizeof(CallWords) == sizeof(Signature));

}  // namespace

std::size_t SharedChannels::post_bytes_for(int ranks) {
  constexpr std::size_t kAll = std::size_t{64} << 20;
  const std::size_t share = kAll / (pairs(ranks) * kChannelSlots) / kLine * kLine;
  return std::clamp(share, std::size_t{1} << 10, std::size_t{64} << 10);
}

std::size_t SharedChannels::least_post_bytes(std::span<const int> host_of) {
  std::map<int, int> ranks_on;
  for (const int host : host_of) ++ranks_on[host];
  std::size_t least = post_bytes_for(1);
  for (const auto& [host, ranks] : ranks_on) least = std::min(least, post_bytes_for(ranks));
  return least;
}

std::size_t SharedChannels::post_area(int ranks) {
  return pairs(ranks) * kChannelSlots * post_bytes_for(ranks);
}

std::size_t SharedChannels::bytes_for(int ranks) {
  return sizeof(Reason) + static_cast<std::size_t>(ranks) * sizeof(StatusLine) +
         pairs(ranks) * kMostLanes * sizeof(Channel) + post_area(ranks);
}

SharedChannels::SharedChannels(void* memory, int ranks)
    : ranks_(ranks), post_bytes_(post_bytes_for(ranks)) {
  auto* at = static_cast<std::byte*>(memory);
  reason_ = reinterpret_cast<Reason*>(at);
  at += sizeof(Reason);
  lines_ = reinterpret_cast<StatusLine*>(at);
  at += static_cast<std::size_t>(ranks) * sizeof(StatusLine);
  channels_ = reinterpret_cast<Channel*>(at);
  posts_ = at + pairs(ranks) * kMostLanes * sizeof(Channel);
}

Channel& SharedChannels::channel(int from, int to, int lane) const {
  const auto p = static_cast<std::size_t>(ranks_);
  const std::size_t pair = static_cast<std::size_t>(from) * p + static_cast<std::size_t>(to);
  return channels_[pair * kMostLanes + static_cast<std::size_t>(lane)];
}

std::byte* SharedChannels::posted(int from, int to, std::size_t slot) const {
  const auto p = static_cast<std::size_t>(ranks_);
  const std::size_t pair = static_cast<std::size_t>(from) * p + static_cast<std::size_t>(to);
  return posts_ + (pair * kChannelSlots + slot) * post_bytes_;
}

StatusLine& SharedChannels::line(int rank) const {
  return lines_[rank];
}

void SharedChannels::enter(int rank, const Signature& call) const {
  StatusLine& own = line(rank);
  const auto words = std::bit_cast<CallWords>(call);
  own.version.fetch_add(1, std::memory_order_acq_rel);
  for (std::size_t i = 0; i < words.size(); ++i) {
    own.call[i].store(words[i], std::memory_order_release);
  }
  own.version.fetch_add(1, std::memory_order_release);
  own.entered.store(call.sequence, std::memory_order_release);
}

RankStatus SharedChannels::status(int rank) const {
  const StatusLine& other = line(rank);
  RankStatus status;
  const std::uint32_t state = other.state.load(std::memory_order_acquire);
  status.state = static_cast<RankStatus::State>(state & ~StatusLine::kGone);
  status.gone = (state & StatusLine::kGone) != 0;
  status.finished = other.finished.load(std::memory_order_acquire);
  status.entered = other.entered.load(std::memory_order_acquire);
  status.beat = other.beat.load(std::memory_order_relaxed);
  CallWords words{};
  const std::uint32_t before = other.version.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = other.call[i].load(std::memory_order_acquire);
  }
  // A call that is changing just now is not worth waiting for; the next look will see it.
  if (before % 2 == 0 && other.version.load(std::memory_order_acquire) == before) {
    status.call = std::bit_cast<Signature>(words);
  }
  return status;
}

bool SharedChannels::raise(std::string_view reason, ExitCode code) const {
  std::uint32_t none = 0;
  if (!reason_->state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  const std::size_t length = std::min(reason.size(), reason_->text.size() - 1);
  std::memcpy(reason_->text.data(), reason.data(), length);
  reason_->text[length] = '\0';
  reason_->code = static_cast<std::uint32_t>(code);
  reason_->state.store(2, std::memory_order_release);
  return true;
}

std::string SharedChannels::reason() const {
  return raised() ? std::string(reason_->text.data()) : std::string();
}

}  // namespace belay::comm
