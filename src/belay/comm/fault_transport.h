#pragma once
// A transport with faults: what passes through it is slowed, lost, or the end of its rank, as a
// FaultScript says. For tests of everything above, over every transport.
//
// A slowed message is seen by its receiver only when the time of its transfer is over. The link
// carries one message after the other; a transfer begins when the receiver first looks for the
// message, as in a rendezvous. Waiting for it takes no processor time (Transport::due()).

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "belay/comm/fault_script.h"
#include "belay/comm/schedule.h"
#include "belay/comm/transport.h"

namespace belay::comm {

// Ranks that are threads cannot take signals alone: a killed one throws Error(communication) out of
// its call, a stopped one stands still until the group has failed, and throws then.
enum class RankIs : std::uint8_t { process, thread };

class FaultTransport final : public Transport {
 public:
  // `inner` must outlive it, and the script's ranks be among its.
  FaultTransport(Transport& inner, FaultScript script, RankIs rank_is = RankIs::process);
  // Takes its place, between calls.
  void set_script(FaultScript script);

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] std::size_t post_bytes() const override { return inner_.post_bytes(); }
  [[nodiscard]] bool readable(const void* data, std::size_t bytes) const override {
    return inner_.readable(data, bytes);
  }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void deallocate(void* memory) override { inner_.deallocate(memory); }
  std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override {
    return inner_.send(peer, lane, data, bytes, signature);
  }
  std::uint64_t post(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override {
    return inner_.post(peer, lane, data, bytes, signature);
  }
  std::uint64_t used(int peer, int lane) override { return inner_.used(peer, lane); }
  bool peek(int peer, int lane, int nth, Message& message) override;
  void release(int peer, int lane) override;
  [[nodiscard]] Clock::time_point due() const override { return due_; }

  void enter(const Signature& call) override;
  void finish(std::uint64_t sequence) override { inner_.finish(sequence); }
  void beat() override;
  void leave(RankStatus::State state) override { inner_.leave(state); }
  [[nodiscard]] std::optional<RankStatus> status(int rank) const override {
    return inner_.status(rank);
  }
  bool raise(std::string_view reason, ExitCode code) override { return inner_.raise(reason, code); }
  [[nodiscard]] bool raised() override { return inner_.raised(); }
  [[nodiscard]] std::string reason() override { return inner_.reason(); }
  [[nodiscard]] ExitCode reason_code() override { return inner_.reason_code(); }

 private:
  // Messages from a peer on a lane that have been seen and not released: when each is there.
  struct Incoming {
    std::array<Clock::time_point, kChannelSlots> there{};
    std::uint64_t seen = 0;
    std::uint64_t released = 0;
  };
  [[nodiscard]] double seconds() const;
  void start_transfer(int peer, Incoming& incoming, const Message& message);
  void strike(std::uint64_t call);

  Transport& inner_;
  FaultScript script_;
  RankIs rank_is_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Incoming> incoming_;          // by peer and lane
  std::vector<Clock::time_point> free_at_;  // when the link from a peer has carried all so far
  std::vector<bool> struck_;                // by fault: kill and stop strike once
  std::uint64_t call_ = 0;
  Clock::time_point due_{};
};

// Null for an empty text; says on the first rank that faults are injected. Error(usage) for a text
// that is not understood.
std::unique_ptr<Transport> inject_faults(Transport& inner, const std::string& text, RankIs rank_is);

}  // namespace belay::comm
