#include "belay/train/train_config.h"

#include <fmt/format.h>

#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::string_view kDtypes[] = {"f32", "bf16", "f16"};
constexpr std::string_view kDevices[] = {"cpu", "reference", "guard"};
constexpr std::int64_t kDefaultMicroBatch = 8;

}  // namespace

std::span<const config::Field> TrainConfig::fields() {
  using config::at_least;
  using config::between;
  using config::field;
  static const config::Field kFields[] = {
      field<&TrainConfig::steps>("steps", "optimizer steps of the whole run",
                                 between(1, 4294967295.0)),
      field<&TrainConfig::micro_batch>(
          "micro_batch", "rows per pass; 0: global_batch / (accumulation x ranks), or 8",
          between(0, 1 << 24)),
      field<&TrainConfig::global_batch>("global_batch",
                                        "rows per step; 0: micro_batch x accumulation x ranks",
                                        between(0, 1 << 30)),
      field<&TrainConfig::accumulation>("accumulation",
                                        "passes per step and rank; 0: derived from the two batches",
                                        between(0, 1 << 24)),
      field<&TrainConfig::dtype>("dtype", "compute type; weights keep an f32 master copy",
                                 config::one_of(kDtypes)),
      field<&TrainConfig::seed>("seed", "of initial weights, data order and dropout"),
      field<&TrainConfig::device>("device", "where to compute", config::one_of(kDevices)),
      field<&TrainConfig::log_every>("log_every", "steps between records in metrics.jsonl",
                                     at_least(1)),
      field<&TrainConfig::eval_every>(
          "eval_every", "steps between evaluations; 0: only after the last step", at_least(0)),
      field<&TrainConfig::eval_batches>(
          "eval_batches", "micro-batches per evaluation; 0: the whole validation set", at_least(0)),
      field<&TrainConfig::snapshot_every>(
          "snapshot_every", "steps between snapshots; 0: only after the last step", at_least(0)),
      field<&TrainConfig::keep_snapshots>("keep_snapshots", "newest snapshots to keep; 0: all",
                                          at_least(0)),
      field<&TrainConfig::head_block_rows>(
          "head_block_rows", "tokens per block of the fused head and loss; 0: automatic",
          at_least(0)),
  };
  return kFields;
}

void resolve_batch(TrainConfig& config, std::int64_t data_parallel) {
  std::int64_t& micro = config.micro_batch;
  std::int64_t& global = config.global_batch;
  std::int64_t& accumulation = config.accumulation;
  const auto given = [&] {
    return fmt::format("global_batch {}, micro_batch {}, accumulation {}, data-parallel ranks {}",
                       global, micro, accumulation, data_parallel);
  };
  const auto check_divisible = [&](std::int64_t divisor) {
    const std::int64_t remainder = global % divisor;
    if (remainder == 0) return;
    const std::int64_t below = global - remainder;
    fail(ExitCode::usage,
         "train.global_batch does not divide: {} leaves a remainder of {} over {} (0: not given); "
         "nearest valid global_batch: {}{}",
         given(), remainder, divisor, below > 0 ? fmt::format("{} and ", below) : "",
         below + divisor);
  };

  if (global == 0) {
    if (micro == 0) micro = kDefaultMicroBatch;
    if (accumulation == 0) accumulation = 1;
    global = micro * accumulation * data_parallel;
    return;
  }
  if (micro == 0) {
    const std::int64_t passes = accumulation == 0 ? 1 : accumulation;
    check_divisible(passes * data_parallel);
    micro = global / (passes * data_parallel);
    accumulation = passes;
    return;
  }
  const std::int64_t product = micro * accumulation * data_parallel;
  check_divisible(micro);
  const std::int64_t passes = global / micro;
  if (passes < data_parallel) {
    fail(ExitCode::usage,
         "train.global_batch {} holds {} micro-batches of {} rows, which are too few for {} ranks; "
         "use at most {} ranks, a smaller micro_batch or a larger global_batch",
         global, passes, micro, data_parallel, passes);
  }
  // Where passes do not divide by the ranks, the first ranks take one more.
  const std::int64_t most = (passes + data_parallel - 1) / data_parallel;
  if (accumulation == 0) accumulation = most;
  if (accumulation != most) {
    fail(ExitCode::usage,
         "train.global_batch is {} but micro_batch x accumulation x ranks is {} ({}); drop one of "
         "the three or set global_batch = {}",
         global, product, given(), product);
  }
}

}  // namespace belay
