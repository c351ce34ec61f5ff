#pragma once
// Channels made of MPI messages, for ranks that share no memory. A message is a header and its
// data; little data travels with the header, more follows it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belay/comm/buffer_pool.h"
#include "belay/comm/mpi_call.h"
#include "belay/comm/schedule.h"
#include "belay/comm/transport.h"

namespace belay::comm {

class MpiMessages {
 public:
  explicit MpiMessages(MPI_Comm world);
  // Does not wait for letters: whoever they are for may be gone.
  ~MpiMessages();
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  // As in Transport. With `copy` the data is free at once.
  std::uint64_t send(int peer, int lane, const void* data, std::size_t bytes,
                     const Signature& signature, bool copy);
  std::uint64_t used(int peer, int lane);
  bool peek(int peer, int lane, int nth, Message& message);
  void release(int peer, int lane);

  // News about a rank to others that share no memory with it: it has left, or the group failed.
  void tell(const std::vector<int>& peers, const RankStatus& status, std::string_view reason,
            ExitCode code);
  struct News {
    int rank = -1;
    RankStatus status;
    std::string reason;
    ExitCode code = ExitCode::ok;  // of the reason
  };
  std::optional<News> hear();

 private:
  struct Header {
    std::uint64_t bytes = 0;
    Signature signature;
  };
  struct Outgoing {
    struct Slot {
      std::vector<std::byte> head;
      std::vector<std::byte> body;  // of what was posted
      std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    };
    std::array<Slot, kChannelSlots> slots;
    std::uint64_t sent = 0;
    std::uint64_t used = 0;
  };
  struct Incoming {
    struct Slot {
      std::vector<std::byte> head;
      BufferPool::Buffer body;  // from its arrival until it is released
      MPI_Request request = MPI_REQUEST_NULL;
      Header header;
    };
    std::array<Slot, kChannelSlots> slots;
    std::uint64_t arrived = 0;
    std::uint64_t released = 0;
  };
  struct Letter {
    std::uint32_t state = 0;
    std::uint32_t gone = 0;
    std::uint32_t code = 0;
    std::uint64_t finished = 0;
    std::array<char, 1004> reason{};
  };

  [[nodiscard]] std::size_t index(int peer, int lane) const;
  void drop_letters_that_have_left();
  bool accept(int peer, int lane, Incoming& incoming);

  MPI_Comm world_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  BufferPool bodies_;
  struct Posted {
    std::unique_ptr<Letter> letter;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::vector<Posted> letters_;  // still on their way
};

}  // namespace belay::comm
