#include "belay/train/loaded_model.h"

#include "belay/machine/available_memory.h"
#include "belay/precision/arithmetic_config.h"
#include "belay/train/model_source.h"

namespace belay {

std::unique_ptr<LoadedModel> load_model(const std::string& dir, const std::string& device,
                                        DType compute) {
  auto model = std::make_unique<LoadedModel>();
  model->config = in_precision(read_model_config(dir), compute);
  model->table = make_parameter_table(model->config);
  const auto state = ParameterStore::bytes(model->table, {compute, false});
  require_memory(state.masters + state.copies, dir, "use a machine with more memory");
  model->device = make_device(device);
  model->store =
      std::make_unique<ParameterStore>(*model->device, model->table, StoreOptions{compute, false});
  load_weights(*model->device->create_lane(), dir, *model->store);
  return model;
}

}  // namespace belay
