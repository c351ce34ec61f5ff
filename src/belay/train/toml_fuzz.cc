// TOML configurations and --set overrides from arbitrary bytes: an error or a configuration that
// reads back, never a crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "belay/base/error.h"
#include "belay/train/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  try {
    belay::parse_config("", "fuzz", {text.substr(0, text.find('\n'))});
  } catch (const belay::Error&) {
  }
  try {
    const std::string effective = to_toml(belay::parse_config(text, "fuzz", {}));
    if (to_toml(belay::parse_config(effective, "effective", {})) != effective) std::abort();
  } catch (const belay::Error&) {
  }
  return 0;
}
