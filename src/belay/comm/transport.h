#pragma once
// How messages get from rank to rank, and what ranks know of each other. One object per rank; used
// by one thread at a time.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "belay/base/error.h"
#include "belay/comm/collective.h"

namespace belay::comm {

// Messages from one rank to another on one lane form a channel, first in first out; this many fit.
inline constexpr int kChannelSlots = 4;

// A message as the receiver sees it: valid until released.
struct Message {
  const void* data = nullptr;
  std::size_t bytes = 0;
  Signature signature;
  // When it was sent, in ns of this host's clock; 0 for messages below kMeteredBytes and those of
  // other hosts.
  std::uint64_t sent_ns = 0;
};

// Smaller ones say nothing of a link's bandwidth, and are not worth a look at the clock.
inline constexpr std::size_t kMeteredBytes = 4096;

// What a rank says of itself.
struct RankStatus {
  enum class State : std::uint32_t { running, left, failed };
  State state = State::running;
  bool gone = false;           // has nothing more to say: its process may end
  std::uint64_t entered = 0;   // sequence number of the last call entered
  std::uint64_t finished = 0;  // and finished
  std::uint64_t beat = 0;      // grows while the rank waits
  Signature call;              // the last call entered
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // The largest message that may be posted; the same on all ranks.
  [[nodiscard]] virtual std::size_t post_bytes() const = 0;
  // Whether a peer on this host can read the memory where it is, as send() needs it to.
  [[nodiscard]] virtual bool readable(const void* data, std::size_t bytes) const = 0;

  // Whether a peer can write to what send() hands it: true on all ranks or none.
  [[nodiscard]] virtual bool shares_memory() const { return false; }

  // Memory that peers can read: aligned to 64 bytes, zero. All ranks call this together, with the
  // same size. Error(capacity) if there is not enough. They free in the same order, each by itself.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;

  // Hands a message to the channel: the peer reads `data` itself, which must stay as it is until
  // used() says so. Returns the message's number in its channel, from 1, or 0 if the channel is
  // full.
  virtual std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                             const Signature& signature) = 0;
  // The same through the transport's own buffers: `data` is free at once. On lane 0 only.
  virtual std::uint64_t post(int peer, int lane, const void* data, std::size_t bytes,
                             const Signature& signature) = 0;
  // How many messages of the channel to a peer have been used.
  virtual std::uint64_t used(int peer, int lane) = 0;
  // The nth message from the peer that has not been released, if it is there.
  virtual bool peek(int peer, int lane, int nth, Message& message) = 0;
  // The oldest message from the peer has been used.
  virtual void release(int peer, int lane) = 0;
  // When the next message that is known to be under way will be there, if that is ahead: a waiting
  // rank may sleep until then. A time gone by where nothing is known.
  [[nodiscard]] virtual Clock::time_point due() const { return {}; }

  // --- What ranks know of each other.
  virtual void enter(const Signature& call) = 0;
  virtual void finish(std::uint64_t sequence) = 0;
  virtual void beat() = 0;
  virtual void leave(RankStatus::State state) = 0;
  // Nothing where the transport cannot tell.
  [[nodiscard]] virtual std::optional<RankStatus> status(int rank) const = 0;
  // Tells all ranks why the group cannot go on, and the exit code of that; the first reason stays.
  // Whether it is one of this rank, as far as its host knows.
  virtual bool raise(std::string_view reason, ExitCode code) = 0;
  [[nodiscard]] virtual bool raised() = 0;
  [[nodiscard]] virtual std::string reason() = 0;
  [[nodiscard]] virtual ExitCode reason_code() = 0;
};

}  // namespace belay::comm
