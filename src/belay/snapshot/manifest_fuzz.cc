// The small JSON files of a snapshot directory: any text is either refused with belay::Error or
// reads; what reads is written back the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "belay/base/error.h"
#include "belay/snapshot/hf_checkpoint.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (belay::manifest_text(belay::parse_manifest(text, "manifest.json")) != text) std::abort();
  } catch (const belay::Error&) {
  }
  try {
    const belay::SnapshotState state = belay::parse_state(text, "state.json");
    if (!(belay::parse_state(belay::state_text(state), "state.json") == state)) std::abort();
  } catch (const belay::Error&) {
  }
  try {
    belay::parse_weight_map(text, "index.json");
  } catch (const belay::Error&) {
  }
  return 0;
}
