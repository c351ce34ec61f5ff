#include "belay/parallel/parallel_config.h"

#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::string_view kSchedules[] = {"1f1b"};
constexpr std::string_view kRecompute[] = {"none"};

void require(std::string_view key, std::int64_t value, std::int64_t only) {
  if (value == only) return;
  fail(ExitCode::usage,
       "parallel.{} = {}: this version trains data-parallel only; set parallel.{} = {}", key, value,
       key, only);
}

}  // namespace

std::span<const config::Field> ParallelConfig::fields() {
  using config::field;
  static const config::Field kFields[] = {
      field<&ParallelConfig::tensor>("tensor", "ranks that share each layer; 1 in this version",
                                     config::at_least(1)),
      field<&ParallelConfig::pipeline>("pipeline", "stages of layers; 1 in this version",
                                       config::at_least(1)),
      field<&ParallelConfig::sequence_parallel>(
          "sequence_parallel", "split norms along the sequence; false in this version"),
      field<&ParallelConfig::zero>("zero",
                                   "what ranks share instead of holding it each: 1 moments, 2 "
                                   "gradients too, 3 weights too; 0: nothing",
                                   config::between(0, 3)),
      field<&ParallelConfig::pipeline_schedule>("pipeline_schedule", "order of passes over stages",
                                                config::one_of(kSchedules)),
      field<&ParallelConfig::recompute>("recompute", "activations to compute twice",
                                        config::one_of(kRecompute)),
  };
  return kFields;
}

void check_parallel(const ParallelConfig& config) {
  require("tensor", config.tensor, 1);
  require("pipeline", config.pipeline, 1);
  if (config.sequence_parallel) {
    fail(ExitCode::usage,
         "parallel.sequence_parallel = true needs parallel.tensor > 1, which this version does "
         "not offer; set it to false");
  }
}

}  // namespace belay
