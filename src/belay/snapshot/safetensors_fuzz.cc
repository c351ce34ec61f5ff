// Any bytes are either refused with belay::Error or parsed into tensors that lie inside them.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "belay/base/error.h"
#include "belay/snapshot/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const belay::SafetensorsHeader header =
        belay::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
    std::uint64_t sum = header.data_begin;
    for (const belay::TensorInfo& info : header.tensors) sum += info.bytes();
    if (sum != size) std::abort();
  } catch (const belay::Error&) {
    return 0;
  }
  return 0;
}
