#pragma once
// Snapshots of several ranks: the first one writes. Where the state is sharded it asks the others
// for their parts, parameter by parameter.

#include <functional>

#include "belay/snapshot/snapshot.h"
#include "belay/train/program.h"
#include "belay/train/rank_group.h"

namespace belay {

// Every rank calls it; on the first one `body` gets a source to read the whole state from. Fails
// together, as RankGroup does. `sharded` may be null.
void save_together(const RankGroup& ranks, ShardedState* sharded, Program& program,
                   const std::function<void(const SnapshotSource&)>& body);

}  // namespace belay
