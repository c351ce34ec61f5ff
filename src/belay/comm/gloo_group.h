#pragma once
// gloo among the communicator's ranks, for the benchmark; never there where it was not built.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"
#ifdef BELAY_GLOO
#include "belay/comm/gloo_baseline.h"
#endif

namespace belay::comm {

#ifdef BELAY_GLOO

// gloo among the ranks of one host, which meet in a directory that rank 0 makes.
class Gloo {
 public:
  Gloo(Communicator& comm, bool one_host) : owner_(comm.rank() == 0) {
    if (comm.size() == 1 || !one_host) return;
    std::array<char, 32> name{};
    if (owner_) {
      std::strcpy(name.data(), "/tmp/belay-gloo-XXXXXX");
      if (mkdtemp(name.data()) == nullptr) name[0] = '\0';
    }
    comm.broadcast(name.data(), name.data(), name.size(), DType::u8, 0);
    if (name[0] == '\0') fail(ExitCode::data, "/tmp: cannot make a directory for gloo");
    directory_ = name.data();
    gloo_.emplace(comm.rank(), comm.size(), directory_);
    comm.barrier();
  }
  ~Gloo() {
    std::error_code ignored;
    if (owner_ && !directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  Gloo(const Gloo&) = delete;
  Gloo& operator=(const Gloo&) = delete;

  [[nodiscard]] bool there() const { return gloo_.has_value(); }
  void all_reduce(const void* input, void* output, std::int64_t count) {
    gloo_->all_reduce(static_cast<const float*>(input), static_cast<float*>(output), count);
  }

 private:
  bool owner_;
  std::string directory_;
  std::optional<GlooBaseline> gloo_;
};

#else

class Gloo {
 public:
  Gloo(Communicator&, bool) {}
  [[nodiscard]] bool there() const { return false; }
  void all_reduce(const void*, void*, std::int64_t) {}
};

#endif

}  // namespace belay::comm
