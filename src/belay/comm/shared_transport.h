#pragma once
// The transport over SharedChannels. A receiver reads the sender's memory where it is: how an
// address of one rank is found by another is left to the subclass.

#include <vector>

#include "belay/comm/shared_channels.h"

namespace belay::comm {

class SharedTransport : public Transport {
 public:
  SharedTransport(SharedChannels channels, int rank);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return channels_.ranks(); }
  [[nodiscard]] std::size_t post_bytes() const override { return channels_.post_bytes(); }
  [[nodiscard]] bool shares_memory() const override { return true; }
  std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override;
  std::uint64_t post(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override;
  std::uint64_t used(int peer, int lane) override;
  bool peek(int peer, int lane, int nth, Message& message) override;
  void release(int peer, int lane) override;

  void enter(const Signature& call) override { channels_.enter(rank_, call); }
  void finish(std::uint64_t sequence) override;
  void beat() override;
  void leave(RankStatus::State state) override;
  void go();  // after that this rank calls nothing more
  [[nodiscard]] std::optional<RankStatus> status(int rank) const override {
    return channels_.status(rank);
  }
  bool raise(std::string_view reason, ExitCode code) override {
    raised_here_ = channels_.raise(reason, code) || raised_here_;
    return raised_here_;
  }
  [[nodiscard]] bool raised() override { return channels_.raised(); }
  [[nodiscard]] std::string reason() override { return channels_.reason(); }
  [[nodiscard]] ExitCode reason_code() override { return channels_.reason_code(); }

 protected:
  // Between this rank's pointers and addresses that all ranks understand.
  [[nodiscard]] virtual std::uint64_t shared_address(const void* data) const = 0;
  [[nodiscard]] virtual const void* local_pointer(int owner, std::uint64_t address) const = 0;

 private:
  // This rank's side of the channels with one peer on one lane.
  struct Side {
    std::uint64_t sent = 0;
    std::uint64_t used = 0;  // of what was sent, as last seen
    std::uint64_t received = 0;
  };
  Side& side(int peer, int lane) {
    return sides_[static_cast<std::size_t>(peer) * kMostLanes + static_cast<std::size_t>(lane)];
  }
  ChannelSlot* free_slot(int peer, int lane);
  std::uint64_t publish(int peer, int lane, ChannelSlot& slot, std::uint64_t address,
                        std::size_t bytes, const Signature& signature);

  SharedChannels channels_;
  int rank_;
  bool raised_here_ = false;
  std::vector<Side> sides_;
};

}  // namespace belay::comm
