// A record of gradient norms from arbitrary bytes: an error or a record that holds together.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "belay/base/error.h"
#include "belay/precision/gradient_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const belay::GradientRecord record = belay::parse_gradient_record(
        std::string_view(reinterpret_cast<const char*>(bytes), size), "fuzz");
    if (record.codes.size() != record.steps.size() * record.layers.size()) std::abort();
    if (record.log2_scale.size() != record.steps.size()) std::abort();
  } catch (const belay::Error&) {
  }
  return 0;
}
