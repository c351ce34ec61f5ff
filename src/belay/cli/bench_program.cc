#include "belay/cli/bench_program.h"

#include "belay/base/log.h"
#include "belay/precision/arithmetic_config.h"

namespace belay {

ProgramConfig bench_program(const std::string& model, std::int64_t batch, std::int64_t seq_len,
                            DType compute) {
  ProgramConfig config;
  config.model = in_precision(preset_config(model), compute);
  config.micro_batch = batch;
  config.seq_len = seq_len;
  config.compute = compute;
  if (seq_len > config.model.seq_len) {
    log::info("{} has {} positions; measured with {}", model, config.model.seq_len, seq_len);
    config.model.seq_len = seq_len;
  }
  return config;
}

}  // namespace belay
