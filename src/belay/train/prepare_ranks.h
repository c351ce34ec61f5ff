#pragma once
// The program of a run on all of its ranks: planned once, with the memory of every host in mind.

#include <string>

#include "belay/parallel/host_place.h"
#include "belay/train/planning.h"
#include "belay/train/rank_group.h"
#include "belay/train/replicas.h"
#include "belay/train/run_setup.h"

namespace belay {

// The first rank measures while the others leave it the machine, and all run what it chose; it
// writes plan.json and config.toml to the run directory. Error(capacity) on all ranks where a
// host's memory does not hold its ranks. A collective.
Prepared prepare_ranks(const RankGroup& ranks, const HostPlace& host, RunSetup& setup,
                       const Replicas& replicas, const std::string& run_dir);

}  // namespace belay
