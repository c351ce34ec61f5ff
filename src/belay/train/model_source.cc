#include "belay/train/model_source.h"

#include <filesystem>

#include "belay/base/error.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/hf_weights.h"

namespace belay {

ModelConfig read_model_config(const std::string& dir) {
  const std::filesystem::path path = std::filesystem::path(dir) / "config.json";
  if (!std::filesystem::exists(path)) {
    fail(
        ExitCode::data,
        "{}: there is no config.json; name a snapshot, a run directory or a Hugging Face directory",
        dir);
  }
  return load_hf_config(dir);
}

void load_weights(Lane& lane, const std::string& dir, const ParameterStore& store) {
  import_weights(dir, store.table(), [&](int index, std::span<const float> values) {
    store.load(lane, ParameterStore::State::masters, index, values);
  });
  store.refresh_copies(lane);
}

}  // namespace belay
