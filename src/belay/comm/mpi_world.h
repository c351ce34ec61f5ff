#pragma once
// The World over MPI: shared-memory windows inside a host, messages between hosts.

#include <memory>

#include "belay/comm/world.h"

namespace belay::comm {

std::unique_ptr<World> join_mpi_world(const WorldOptions& options);

}  // namespace belay::comm
