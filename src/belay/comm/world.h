#pragma once
// The ranks of this run: those that mpirun started, or one. Where MPI is left out of the build
// (BELAY_MPI=OFF), always one.

#include <cstdint>
#include <memory>
#include <vector>

#include "belay/base/dtype.h"
#include "belay/comm/transport.h"

namespace belay::comm {

struct WorldOptions {
  // Shared memory among the ranks of a host; without, every rank counts as a host of its own.
  bool shared_memory = true;
};

// How many ranks mpirun has started, this one included; 1 without it. Does not touch MPI.
int launched_ranks();

class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] virtual Transport& transport() = 0;
  [[nodiscard]] int rank() { return transport().rank(); }
  [[nodiscard]] int size() { return transport().size(); }
  // Host of each rank, numbered from 0 in the order of ranks.
  [[nodiscard]] virtual const std::vector<int>& host_of() const = 0;

  // MPI's own sum of f32 values, to compare with. False where there is no MPI, and for more values
  // than it can count.
  virtual bool mpi_all_reduce(const void* input, void* output, std::int64_t count) = 0;
  virtual void mpi_barrier() = 0;

  // Once per process; MPI is not started where mpirun is not. Error(communication) if MPI cannot
  // start.
  static std::unique_ptr<World> join(const WorldOptions& options = {});

 protected:
  World() = default;
};

}  // namespace belay::comm
