#include "belay/train/evaluate.h"

#include <algorithm>
#include <chrono>

#include "belay/train/batch_source.h"

namespace belay {

EvaluationResult evaluate(Program& program, const data::Dataset& dataset,
                          const EvaluationOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramConfig& config = program.config();
  data::LoaderOptions loading;
  loading.rows = config.micro_batch;
  data::Loader loader(dataset, loading);
  const BatchAdapter adapter(config.micro_batch, config.seq_len, options.isolate_documents);
  const std::int64_t batches =
      options.batches > 0 ? std::min(options.batches, loader.batches()) : loader.batches();

  Lane& lane = program.lane();
  program.clear_loss(lane);
  EvaluationResult result;
  for (std::int64_t index = 0; index < batches; ++index) {
    const data::Batch& batch = loader.next();
    program.run_micro_batch(lane, adapter.adapt(batch), {0, 0}, false);
    lane.wait();
    result.tokens += batch.counted;
  }
  const double sum = program.read_loss(lane);
  result.loss = result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0.0;
  result.ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace belay
