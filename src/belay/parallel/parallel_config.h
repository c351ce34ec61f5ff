#pragma once
// [parallel]: the mesh. All ranks are data-parallel in this version, so only 1 is accepted for the
// other dimensions.

#include <cstdint>
#include <span>
#include <string>

#include "belay/base/config.h"

namespace belay {

enum class PipelineSchedule : std::uint8_t { one_forward_one_backward };
enum class Recompute : std::uint8_t { none };

struct ParallelConfig {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  bool sequence_parallel = false;
  std::int64_t zero = 0;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  Recompute recompute = Recompute::none;

  static constexpr std::string_view kSection = "parallel";
  static std::span<const config::Field> fields();
};

// Error(usage) for meshes that this version does not offer.
void check_parallel(const ParallelConfig& config);

}  // namespace belay
