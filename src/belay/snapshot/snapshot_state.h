#pragma once
// SnapshotState as JSON text.

#include <string>
#include <string_view>

#include "belay/snapshot/snapshot.h"

namespace belay {

std::string state_text(const SnapshotState& state);
// Error(data) names the missing or wrong key.
SnapshotState parse_state(std::string_view text, const std::string& path);

}  // namespace belay
