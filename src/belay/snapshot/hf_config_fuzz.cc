// Any text is either refused with belay::Error or gives a model whose own config.json reads back
// the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/snapshot/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  belay::log::set_level(belay::log::Level::off);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  belay::ModelConfig config;
  try {
    config = belay::parse_hf_config(text, "config.json");
  } catch (const belay::Error&) {
    return 0;
  }
  const std::string written = belay::hf_config_text(config, belay::DType::f32);
  const belay::ModelConfig again = belay::parse_hf_config(written, "config.json");
  if (!belay::first_difference(config, again).empty()) std::abort();
  return 0;
}
