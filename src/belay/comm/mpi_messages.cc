#include "belay/comm/mpi_messages.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace belay::comm {
namespace {

// Data up to this size travels with the header.
constexpr std::size_t kTogether = 4096;
constexpr std::size_t kHeadBytes = 64;
// Of the buffers of messages that have been used, for those to come.
constexpr std::size_t kKeptBytes = std::size_t{64} << 20;
constexpr int kDataTags = kMostLanes;
constexpr int kNewsTag = 2 * kMostLanes;

int count_of(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    fail(ExitCode::usage,
         "a message of {} bytes between hosts: MPI takes less than 2 GiB; use "
         "smaller buckets",
         bytes);
  }
  return static_cast<int>(bytes);
}

// Room that only grows.
std::byte* room(std::vector<std::byte>& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
  return buffer.data();
}

}  // namespace

MpiMessages::MpiMessages(MPI_Comm world) : world_(world), bodies_(kKeptBytes) {
  int size = 1;
  MPI_Comm_size(world_, &size);
  outgoing_.resize(static_cast<std::size_t>(size) * kMostLanes);
  incoming_.resize(outgoing_.size());
}

MpiMessages::~MpiMessages() {
  drop_letters_that_have_left();
  // MPI may read the others until the process ends.
  static auto* const unread = new std::vector<std::unique_ptr<Letter>>;
  for (Posted& posted : letters_) {
    MPI_Request_free(&posted.request);
    unread->push_back(std::move(posted.letter));
  }
}

std::size_t MpiMessages::index(int peer, int lane) const {
  return static_cast<std::size_t>(peer) * kMostLanes + static_cast<std::size_t>(lane);
}

std::uint64_t MpiMessages::send(int peer, int lane, const void* data, std::size_t bytes,
                                const Signature& signature, bool copy) {
  Outgoing& out = outgoing_[index(peer, lane)];
  if (out.sent - out.used >= kChannelSlots && out.sent - used(peer, lane) >= kChannelSlots) {
    return 0;
  }
  Outgoing::Slot& slot = out.slots[out.sent % kChannelSlots];
  std::byte* const head = room(slot.head, kHeadBytes + kTogether);
  const Header header{bytes, signature};
  std::memcpy(head, &header, sizeof(header));
  const bool together = bytes <= kTogether;
  if (together && bytes > 0) std::memcpy(head + kHeadBytes, data, bytes);
  check_mpi(MPI_Isend(head, count_of(kHeadBytes + (together ? bytes : 0)), MPI_BYTE, peer, lane,
                      world_, &slot.requests[0]),
            "MPI_Isend");
  if (!together) {
    if (copy) {
      std::memcpy(room(slot.body, bytes), data, bytes);
      data = slot.body.data();
    }
    check_mpi(MPI_Isend(data, count_of(bytes), MPI_BYTE, peer, kDataTags + lane, world_,
                        &slot.requests[1]),
              "MPI_Isend");
  }
  return ++out.sent;
}

std::uint64_t MpiMessages::used(int peer, int lane) {
  Outgoing& out = outgoing_[index(peer, lane)];
  while (out.used < out.sent) {
    Outgoing::Slot& slot = out.slots[out.used % kChannelSlots];
    int done = 0;
    check_mpi(MPI_Testall(2, slot.requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done == 0) break;
    ++out.used;
  }
  return out.used;
}

bool MpiMessages::accept(int peer, int lane, Incoming& in) {
  if (in.arrived - in.released >= kChannelSlots) return false;
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(peer, lane, world_, &found, &message, &status), "MPI_Improbe");
  if (found == 0) return false;
  Incoming::Slot& slot = in.slots[in.arrived % kChannelSlots];
  std::byte* const head = room(slot.head, kHeadBytes + kTogether);
  check_mpi(MPI_Mrecv(head, count_of(kHeadBytes + kTogether), MPI_BYTE, &message, &status),
            "MPI_Mrecv");
  std::memcpy(&slot.header, head, sizeof(slot.header));
  const std::size_t bytes = slot.header.bytes;
  if (bytes > kTogether) {
    slot.body = bodies_.take(bytes);
    check_mpi(MPI_Irecv(slot.body.data.get(), count_of(bytes), MPI_BYTE, peer, kDataTags + lane,
                        world_, &slot.request),
              "MPI_Irecv");
  }
  ++in.arrived;
  return true;
}

bool MpiMessages::peek(int peer, int lane, int nth, Message& message) {
  Incoming& in = incoming_[index(peer, lane)];
  while (in.arrived - in.released <= static_cast<std::uint64_t>(nth)) {
    if (!accept(peer, lane, in)) return false;
  }
  Incoming::Slot& slot = in.slots[(in.released + static_cast<std::uint64_t>(nth)) % kChannelSlots];
  int done = 0;
  check_mpi(MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done == 0) return false;
  message.bytes = slot.header.bytes;
  message.signature = slot.header.signature;
  message.sent_ns = 0;
  message.data = message.bytes > kTogether ? slot.body.data.get() : slot.head.data() + kHeadBytes;
  return true;
}

void MpiMessages::release(int peer, int lane) {
  Incoming& in = incoming_[index(peer, lane)];
  bodies_.give_back(std::exchange(in.slots[in.released % kChannelSlots].body, {}));
  ++in.released;
}

void MpiMessages::tell(const std::vector<int>& peers, const RankStatus& status,
                       std::string_view reason, ExitCode code) {
  Letter letter;
  letter.state = static_cast<std::uint32_t>(status.state);
  letter.gone = status.gone ? 1 : 0;
  letter.code = static_cast<std::uint32_t>(code);
  letter.finished = status.finished;
  const std::size_t length = std::min(reason.size(), letter.reason.size() - 1);
  if (length > 0) std::memcpy(letter.reason.data(), reason.data(), length);
  // Short enough to leave at once, and nobody waits for it: the peer may be gone.
  for (const int peer : peers) {
    Posted posted{std::make_unique<Letter>(letter)};
    if (MPI_Isend(posted.letter.get(), sizeof(Letter), MPI_BYTE, peer, kNewsTag, world_,
                  &posted.request) == MPI_SUCCESS) {
      letters_.push_back(std::move(posted));
    }
  }
  drop_letters_that_have_left();
}

void MpiMessages::drop_letters_that_have_left() {
  std::erase_if(letters_, [](Posted& posted) {
    int done = 0;
    // An error says that it will not leave any more.
    return MPI_Test(&posted.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

std::optional<MpiMessages::News> MpiMessages::hear() {
  int found = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kNewsTag, world_, &found, &status), "MPI_Iprobe");
  if (found == 0) return std::nullopt;
  Letter letter;
  check_mpi(MPI_Recv(&letter, sizeof(letter), MPI_BYTE, status.MPI_SOURCE, kNewsTag, world_,
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
  RankStatus news;
  news.state = static_cast<RankStatus::State>(letter.state);
  news.gone = letter.gone != 0;
  news.entered = news.finished = letter.finished;
  return News{status.MPI_SOURCE, news, letter.reason.data(), static_cast<ExitCode>(letter.code)};
}

}  // namespace belay::comm
