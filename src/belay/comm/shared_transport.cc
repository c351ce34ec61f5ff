#include "belay/comm/shared_transport.h"

#include <cstring>

#include "belay/base/check.h"
#include "belay/comm/ticks.h"

namespace belay::comm {

SharedTransport::SharedTransport(SharedChannels channels, int rank)
    : channels_(channels),
      rank_(rank),
      sides_(static_cast<std::size_t>(channels.ranks()) * kMostLanes) {}

ChannelSlot* SharedTransport::free_slot(int peer, int lane) {
  Side& own = side(peer, lane);
  if (own.sent - own.used >= kChannelSlots) {
    if (own.sent - used(peer, lane) >= kChannelSlots) return nullptr;
  }
  return &channels_.channel(rank_, peer, lane).slots[own.sent % kChannelSlots];
}

std::uint64_t SharedTransport::publish(int peer, int lane, ChannelSlot& slot, std::uint64_t address,
                                       std::size_t bytes, const Signature& signature) {
  slot.address = address;
  slot.bytes = bytes;
  slot.signature = signature;
  slot.sent_ns = bytes >= kMeteredBytes ? clock_ns(CLOCK_MONOTONIC) : 0;
  const std::uint64_t number = ++side(peer, lane).sent;
  slot.number.store(number, std::memory_order_release);
  return number;
}

std::uint64_t SharedTransport::send(int peer, int lane, const void* data, std::size_t bytes,
                                    const Signature& signature) {
  ChannelSlot* const slot = free_slot(peer, lane);
  if (slot == nullptr) return 0;
  return publish(peer, lane, *slot, shared_address(data), bytes, signature);
}

std::uint64_t SharedTransport::post(int peer, int lane, const void* data, std::size_t bytes,
                                    const Signature& signature) {
  BELAY_CHECK(lane == 0 && bytes <= channels_.post_bytes());
  ChannelSlot* const slot = free_slot(peer, lane);
  if (slot == nullptr) return 0;
  if (bytes > 0) {
    std::memcpy(channels_.posted(rank_, peer, side(peer, lane).sent % kChannelSlots), data, bytes);
  }
  return publish(peer, lane, *slot, kPosted, bytes, signature);
}

std::uint64_t SharedTransport::used(int peer, int lane) {
  Side& own = side(peer, lane);
  own.used = channels_.channel(rank_, peer, lane).used.load(std::memory_order_acquire);
  return own.used;
}

bool SharedTransport::peek(int peer, int lane, int nth, Message& message) {
  if (nth >= kChannelSlots) return false;
  const std::uint64_t number = side(peer, lane).received + static_cast<std::uint64_t>(nth) + 1;
  const std::size_t index = (number - 1) % kChannelSlots;
  const ChannelSlot& slot = channels_.channel(peer, rank_, lane).slots[index];
  if (slot.number.load(std::memory_order_acquire) != number) return false;
  message.data = slot.address == kPosted ? channels_.posted(peer, rank_, index)
                                         : local_pointer(peer, slot.address);
  message.bytes = slot.bytes;
  message.signature = slot.signature;
  message.sent_ns = slot.sent_ns;
  return true;
}

void SharedTransport::release(int peer, int lane) {
  const std::uint64_t number = ++side(peer, lane).received;
  channels_.channel(peer, rank_, lane).used.store(number, std::memory_order_release);
}

void SharedTransport::finish(std::uint64_t sequence) {
  channels_.line(rank_).finished.store(sequence, std::memory_order_release);
}

void SharedTransport::beat() {
  channels_.line(rank_).beat.fetch_add(1, std::memory_order_relaxed);
}

void SharedTransport::leave(RankStatus::State state) {
  channels_.line(rank_).state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

void SharedTransport::go() {
  channels_.line(rank_).state.fetch_or(StatusLine::kGone, std::memory_order_release);
}

}  // namespace belay::comm
