#include "belay/train/evaluate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "belay/base/stopwatch.h"
#include "belay/train/batch_source.h"

namespace belay {

EvaluationResult evaluate(Program& program, const data::Dataset& dataset,
                          const EvaluationOptions& options, const RankGroup& ranks) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramConfig& config = program.config();
  data::LoaderOptions loading;
  loading.rows = config.micro_batch;
  loading.stride = ranks.size() * config.micro_batch;
  loading.offset = ranks.rank() * config.micro_batch;
  data::Loader loader(dataset, loading);
  const BatchAdapter adapter(config.micro_batch, config.seq_len, options.isolate_documents);
  const std::int64_t all = (dataset.samples() + config.micro_batch - 1) / config.micro_batch;
  const std::int64_t batches = options.batches > 0 ? std::min(options.batches, all) : all;

  Lane& lane = program.lane();
  program.clear_loss(lane);
  EvaluationResult result;
  // A stable sum adds batch by batch, so that it does not depend on who took which.
  const bool stable = program.sums_stably();
  StableScalar stable_sum;
  const std::int64_t rounds = (batches + ranks.size() - 1) / ranks.size();
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round * ranks.size() + ranks.rank() < batches) {
      const data::Batch& batch = loader.next();
      program.run_micro_batch(lane, adapter.adapt(batch), {0, 0}, false);
      lane.wait();
      result.tokens += batch.counted;
    } else {
      program.join_forward(lane);
    }
    if (stable) {
      double loss = program.read_loss(lane);
      program.clear_loss(lane);
      ranks.sum({&loss, 1});
      stable_sum.add(loss);
    }
  }
  std::array<double, 2> sums = {stable ? 0.0 : program.read_loss(lane),
                                static_cast<double>(result.tokens)};
  ranks.sum(sums);
  if (stable) sums[0] = stable_sum.finish();
  result.tokens = static_cast<std::int64_t>(sums[1]);
  result.loss = result.tokens > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
  result.ms = ms_since(begin);
  return result;
}

}  // namespace belay
