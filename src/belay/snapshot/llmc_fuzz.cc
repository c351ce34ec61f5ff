// Any bytes are either refused with belay::Error or describe a model that lies inside them.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "belay/base/error.h"
#include "belay/snapshot/llmc.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const belay::LlmcHeader header =
        belay::parse_llmc(std::as_bytes(std::span(data, size)), "input");
    const belay::ParameterTable table = belay::make_parameter_table(header.config);
    if (static_cast<std::uint64_t>(table.parameter_count()) * belay::size_of(header.dtype) > size) {
      std::abort();
    }
  } catch (const belay::Error&) {
    return 0;
  }
  return 0;
}
