#include "belay/comm/mpi_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "belay/comm/mpi_messages.h"
#include "belay/comm/mpi_shared.h"

namespace belay::comm {
namespace {

constexpr std::chrono::seconds kLastWords(2);

struct Place {
  int host = 0;
  int local = 0;  // rank on its host
};

// Shared memory to ranks of this host, messages to others.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm world, MPI_Comm host, std::vector<Place> places, int rank,
               std::size_t post_bytes)
      : places_(std::move(places)),
        rank_(rank),
        post_bytes_(post_bytes),
        shared_(MpiSharedTransport::make(host)),
        messages_(world),
        remote_status_(places_.size()) {
    for (int peer = 0; peer < size(); ++peer) {
      if (!is_local(peer)) remote_.push_back(peer);
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(places_.size()); }
  // Schedules depend on it, so it is that of all ranks, not of this host.
  [[nodiscard]] std::size_t post_bytes() const override { return post_bytes_; }
  [[nodiscard]] bool readable(const void* data, std::size_t bytes) const override {
    return shared_->size() == 1 || shared_->readable(data, bytes);
  }
  [[nodiscard]] bool shares_memory() const override { return remote_.empty(); }
  void* allocate(std::size_t bytes) override { return shared_->allocate(bytes); }
  void deallocate(void* memory) override { shared_->deallocate(memory); }

  std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override {
    return is_local(peer) ? shared_->send(local(peer), lane, data, bytes, signature)
                          : messages_.send(peer, lane, data, bytes, signature, false);
  }
  std::uint64_t post(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature) override {
    return is_local(peer) ? shared_->post(local(peer), lane, data, bytes, signature)
                          : messages_.send(peer, lane, data, bytes, signature, true);
  }
  std::uint64_t used(int peer, int lane) override {
    return is_local(peer) ? shared_->used(local(peer), lane) : messages_.used(peer, lane);
  }
  bool peek(int peer, int lane, int nth, Message& message) override {
    return is_local(peer) ? shared_->peek(local(peer), lane, nth, message)
                          : messages_.peek(peer, lane, nth, message);
  }
  void release(int peer, int lane) override {
    if (is_local(peer)) {
      shared_->release(local(peer), lane);
    } else {
      messages_.release(peer, lane);
    }
  }

  void enter(const Signature& call) override { shared_->enter(call); }
  void finish(std::uint64_t sequence) override { shared_->finish(sequence); }
  void beat() override { shared_->beat(); }
  void leave(RankStatus::State state) override {
    shared_->leave(state);
    tell_state();
  }
  void go() {
    shared_->go();
    tell_state();
  }
  [[nodiscard]] std::optional<RankStatus> status(int rank) const override {
    if (is_local(rank)) return shared_->status(local(rank));
    return remote_status_[static_cast<std::size_t>(rank)];
  }
  bool raise(std::string_view reason, ExitCode code) override {
    if (raised_here_) return true;
    if (!shared_->raise(reason, code)) return false;
    raised_here_ = true;
    messages_.tell(remote_, {}, reason, code);
    return true;
  }
  [[nodiscard]] bool raised() override {
    if (!remote_.empty()) hear();
    return shared_->raised();
  }
  [[nodiscard]] std::string reason() override { return shared_->reason(); }
  [[nodiscard]] ExitCode reason_code() override { return shared_->reason_code(); }
  // Whether another rank has failed with an error of its own, which it still has to tell.
  [[nodiscard]] bool raised_elsewhere() {
    return raised() && !raised_here_ && reason_code() != ExitCode::communication;
  }

  // Whether no rank has anything more to say.
  [[nodiscard]] bool all_gone() {
    if (!remote_.empty()) hear();
    for (int rank = 0; rank < size(); ++rank) {
      const auto other = status(rank);
      if (!other || !other->gone) return false;
    }
    return true;
  }
  MpiWindows& windows() { return shared_->windows(); }

 private:
  [[nodiscard]] bool is_local(int peer) const {
    return places_[static_cast<std::size_t>(peer)].host ==
           places_[static_cast<std::size_t>(rank_)].host;
  }
  [[nodiscard]] int local(int peer) const { return places_[static_cast<std::size_t>(peer)].local; }
  void tell_state() {
    messages_.tell(remote_, *shared_->status(shared_->rank()), {}, ExitCode::ok);
  }
  void hear() {
    while (const auto news = messages_.hear()) {
      if (!news->reason.empty()) {
        shared_->raise(news->reason, news->code);
        continue;
      }
      remote_status_[static_cast<std::size_t>(news->rank)] = news->status;
    }
  }

  std::vector<Place> places_;
  int rank_;
  std::size_t post_bytes_;
  std::unique_ptr<MpiSharedTransport> shared_;
  MpiMessages messages_;
  std::vector<int> remote_;
  std::vector<std::optional<RankStatus>> remote_status_;
  bool raised_here_ = false;
};

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const WorldOptions& options) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
              "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
      fail(ExitCode::communication, "this MPI cannot be used by more than one thread");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != launched_ranks()) {
      fail(ExitCode::communication,
           "mpirun started {} ranks, but this process knows of {}: it belongs to another MPI than "
           "belay, which was built with Open MPI; start it with that one's mpirun",
           launched_ranks(), size);
    }
    if (options.shared_memory) {
      check_mpi(
          MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host_),
          "MPI_Comm_split_type");
    } else {
      check_mpi(MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &host_), "MPI_Comm_split");
    }
    MPI_Comm_set_errhandler(host_, MPI_ERRORS_RETURN);
    // A host goes by its lowest rank; then by the number of that among them.
    int lowest = rank;
    check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, host_), "MPI_Bcast");
    std::vector<int> lowest_of(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, lowest_of.data(), 1, MPI_INT, MPI_COMM_WORLD),
              "MPI_Allgather");
    std::vector<Place> places(static_cast<std::size_t>(size));
    std::vector<int> members(static_cast<std::size_t>(size));
    int hosts = 0;
    for (int other = 0; other < size; ++other) {
      const auto at = static_cast<std::size_t>(other);
      const auto head = static_cast<std::size_t>(lowest_of[at]);
      if (lowest_of[at] == other) places[at].host = hosts++;
      places[at].host = places[head].host;
      places[at].local = members[head]++;
      host_of_.push_back(places[at].host);
    }
    transport_ = std::make_unique<MpiTransport>(MPI_COMM_WORLD, host_, std::move(places), rank,
                                                SharedChannels::least_post_bytes(host_of_));
  }

  ~MpiWorld() override {
    const bool failed = std::uncaught_exceptions() > 0;
    if (failed) {
      transport_->raise(fmt::format("rank {} has failed", transport_->rank()),
                        ExitCode::communication);
    }
    transport_->go();
    wait_for_others();
    // Freeing windows takes all ranks; one that failed does not come.
    if (transport_->raised() || !transport_->all_gone()) {
      // The exit code of the job should be that of a rank that failed: those that did not go last.
      if (!failed || transport_->raised_elsewhere()) std::this_thread::sleep_for(kLastWords);
      transport_->windows().abandon();
      return;
    }
    transport_->windows().free_all();
    transport_.reset();
    MPI_Comm_free(&host_);
    MPI_Finalize();
  }

  [[nodiscard]] Transport& transport() override { return *transport_; }
  [[nodiscard]] const std::vector<int>& host_of() const override { return host_of_; }

  bool mpi_all_reduce(const void* input, void* output, std::int64_t count) override {
    if (count > std::numeric_limits<int>::max()) return false;
    check_mpi(MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, static_cast<int>(count),
                            MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
    return true;
  }
  void mpi_barrier() override { check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

 private:
  // A rank that goes makes mpirun end the others, which may still have to say what they know. As
  // long as nothing is known to be wrong they may be very late; else one may have stopped.
  void wait_for_others() {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::hours(1);
    while (!transport_->all_gone() && Clock::now() < end) {
      if (transport_->raised()) end = std::min(end, Clock::now() + kLastWords);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  MPI_Comm host_ = MPI_COMM_NULL;
  std::vector<int> host_of_;
  std::unique_ptr<MpiTransport> transport_;
};

}  // namespace

std::unique_ptr<World> join_mpi_world(const WorldOptions& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace belay::comm
