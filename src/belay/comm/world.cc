#include "belay/comm/world.h"

#include <algorithm>
#include <cstdlib>

#include "belay/base/error.h"
#include "belay/comm/thread_transport.h"
#ifdef BELAY_MPI
#include "belay/comm/mpi_world.h"
#endif

namespace belay::comm {
namespace {

// The variables by which launchers tell a process that it has company: Open MPI's, and PMI's.
int launched_ranks_or_none() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const size = std::getenv(name);
    if (size != nullptr && std::atoi(size) > 0) return std::atoi(size);
  }
  return 0;
}

class SingleWorld final : public World {
 public:
  [[nodiscard]] Transport& transport() override { return group_.transport(0); }
  [[nodiscard]] const std::vector<int>& host_of() const override { return host_of_; }
  bool mpi_all_reduce(const void*, void*, std::int64_t) override { return false; }
  void mpi_barrier() override {}

 private:
  ThreadGroup group_{1};
  std::vector<int> host_of_{0};
};

}  // namespace

int launched_ranks() {
  return std::max(1, launched_ranks_or_none());
}

std::unique_ptr<World> World::join(const WorldOptions& options) {
  if (launched_ranks_or_none() == 0) return std::make_unique<SingleWorld>();
#ifdef BELAY_MPI
  return join_mpi_world(options);
#else
  static_cast<void>(options);
  fail(ExitCode::usage, "this build of belay is for one process; build with -DBELAY_MPI=ON");
#endif
}

}  // namespace belay::comm
