#include "belay/parallel/compression_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "belay/base/check.h"

namespace belay {
namespace {

constexpr std::int64_t kLeast = 4096;
constexpr std::int64_t kMost = std::int64_t{4} << 20;
constexpr int kRepetitions = 5;

// Of the slowest rank; the fastest of a few, as other programs only ever make it slower.
double time_of(comm::Communicator& communicator, BucketReducer& reducer, std::span<float> bucket,
               const std::vector<float>& values) {
  using Clock = std::chrono::steady_clock;
  const BucketPiece piece{0, 0, std::ssize(bucket), 0, true};
  double times[kRepetitions + 1];
  for (double& time : times) {
    std::copy(values.begin(), values.begin() + std::ssize(bucket), bucket.begin());
    communicator.barrier();
    const Clock::time_point begin = Clock::now();
    reducer.begin_step(1);
    reducer.reduce(bucket, {&piece, 1});
    reducer.end_step(true);
    time = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  communicator.all_reduce(times, times, kRepetitions + 1, DType::f64, comm::ReduceOp::max);
  return *std::min_element(times + 1, times + kRepetitions + 1);  // the first prepares
}

}  // namespace

std::vector<CompressionTiming> time_compression(comm::Communicator& communicator,
                                                std::int64_t bucket_elements,
                                                const CompressionOptions& options) {
  const std::int64_t most = std::min(bucket_elements, kMost);
  std::vector<float> values(static_cast<std::size_t>(most));
  std::mt19937 random(static_cast<unsigned>(communicator.rank()));
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  auto* const bucket =
      static_cast<float*>(communicator.allocate(static_cast<std::size_t>(most) * sizeof(float)));
  std::vector<CompressionTiming> timings;
  DenseReducer dense(communicator);
  for (std::int64_t elements = std::min(kLeast, most);; elements = std::min(elements * 8, most)) {
    ParameterTable table;
    Parameter trial;
    trial.name = "trial";
    trial.shape = {1, elements};
    table.add(trial);
    CompressedReducer compressed(communicator, table, elements, options, {true});
    const std::span<float> part(bucket, static_cast<std::size_t>(elements));
    CompressionTiming timing{elements};
    timing.dense_s = time_of(communicator, dense, part, values);
    timing.compressed_s = time_of(communicator, compressed, part, values);
    timings.push_back(timing);
    if (elements == most) break;
  }
  communicator.deallocate(bucket);
  communicator.forget_schedules();
  return timings;
}

CompressionTiming predict_compression(const std::vector<CompressionTiming>& timings,
                                      std::int64_t elements) {
  BELAY_CHECK(!timings.empty());
  const auto n = static_cast<double>(elements);
  const auto above = std::find_if(timings.begin(), timings.end(), [&](const CompressionTiming& t) {
    return t.elements >= elements;
  });
  if (above == timings.begin()) {
    return {elements, above->dense_s, above->compressed_s};  // calls cost what they cost
  }
  const CompressionTiming& low = *(above - 1);
  const double grown = n / static_cast<double>(low.elements);
  if (above == timings.end()) return {elements, low.dense_s * grown, low.compressed_s * grown};
  const double place = std::log(grown) / std::log(static_cast<double>(above->elements) /
                                                  static_cast<double>(low.elements));
  const auto between = [&](double a, double b) { return a * std::pow(b / a, place); };
  return {elements, between(low.dense_s, above->dense_s),
          between(low.compressed_s, above->compressed_s)};
}

CompressionChoice choose_compression(comm::Communicator& communicator, const ParameterTable& table,
                                     std::int64_t bucket_elements, const comm::CommConfig& config,
                                     const std::vector<bool>* before) {
  const CompressionOptions options = compression_options(config);
  const std::string_view mode = name_of(config.compression);
  const std::vector<bool> none(static_cast<std::size_t>(table.size()), false);
  const CompressionGroup group(communicator, options.level);
  if (group.size() == 1) {
    return {none,
            "nothing is compressed: there is one domain, and comm.compression_level = "
            "\"slow\" compresses between domains"};
  }
  if (comm::takes_top_k(config.compression) &&
      1 - config.topk_ratio < config.compression_min_sparsity) {
    return {none, fmt::format("nothing is compressed: comm.topk_ratio = {} leaves out less than "
                              "comm.compression_min_sparsity = {}",
                              config.topk_ratio, config.compression_min_sparsity)};
  }
  std::vector<bool> marked = compressible(table);
  const auto count = [&] { return std::count(marked.begin(), marked.end(), true); };
  const auto eligible = count();
  if (config.compression_when == comm::CompressionWhen::always) {
    return {marked, fmt::format("{} compresses {} of {} tensors", mode, eligible, table.size())};
  }
  if (before != nullptr) {
    const auto kept = std::count(before->begin(), before->end(), true);
    return {*before,
            fmt::format("{} compresses {} of {} tensors, as before", mode, kept, table.size()),
            true};
  }
  const std::vector<CompressionTiming> timings =
      time_compression(communicator, bucket_elements, options);
  for (int index = 0; index < table.size(); ++index) {
    const auto at = static_cast<std::size_t>(index);
    if (!marked[at]) continue;
    const CompressionTiming timing = predict_compression(timings, table[index].elements());
    marked[at] = timing.compressed_s < timing.dense_s;
  }
  const CompressionTiming& largest = timings.back();
  return {marked,
          fmt::format("{} pays for {} of {} tensors; {} elements by themselves take {:.3f} "
                      "ms as they are and {:.3f} ms compressed",
                      mode, count(), table.size(), largest.elements, largest.dense_s * 1e3,
                      largest.compressed_s * 1e3),
          true};
}

}  // namespace belay
