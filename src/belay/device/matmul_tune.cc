#include "belay/device/matmul_tune.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_set>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/device/cpu/matmul/candidates.h"
#include "belay/device/matmul_cache.h"
#include "belay/device/reference/element.h"

namespace belay {
namespace {

constexpr std::int64_t kPeriod = 65521;          // prime: no stride of a matrix repeats it
constexpr std::int64_t kShift = 30011;           // b starts here, so that it does not follow a
constexpr std::int64_t kChunk = 16 * kPeriod;    // elements copied at once
constexpr std::size_t kColdBytes = 64UL << 20U;  // operands rotate through at least this much
constexpr std::size_t kMostSets = 8;
constexpr double kSampleSeconds = 2e-4;  // shorter calls are timed in batches of about this

double now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Element i of every operand, so that any entry of the result can be worked out on the host without
// keeping the operands there. Exact in bf16 and f16.
double pattern(std::int64_t i) {
  const std::uint32_t hash = static_cast<std::uint32_t>(i % kPeriod) * 2654435761U;
  return (static_cast<double>((hash >> 20U) & 255U) - 127.5) / 128.0;
}

// The operands of one call, in device memory.
struct Operands {
  std::unique_ptr<DeviceMemory> a, b, bias, dst;
  MatmulArgs args;
};

class Bench {
 public:
  Bench(Device& device, const MatmulKey& key, bool processor_time);
  // Runs once and compares sampled entries with the definition. Returns what is wrong, if anything.
  std::string check(const Candidate<MatmulArgs>& candidate, double& seconds);
  // Seconds per call, over `calls` calls on rotating operands.
  double time(const Candidate<MatmulArgs>& candidate, int calls);
  [[nodiscard]] const MatmulArgs& args() const { return sets_.front().args; }

 private:
  Operands make_operands(Device& device, const std::vector<std::byte>& source);
  [[nodiscard]] double expected(std::int64_t row, std::int64_t col, double before) const;

  MatmulKey key_;
  clockid_t clock_;
  std::unique_ptr<Lane> lane_;
  std::vector<Operands> sets_;
  std::size_t next_ = 0;
};

Bench::Bench(Device& device, const MatmulKey& key, bool processor_time)
    : key_(key),
      clock_(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC),
      lane_(device.create_lane()) {
  const std::size_t width = size_of(key.src);
  std::vector<std::byte> source((kChunk + kShift) * width);
  for (std::size_t at = 0; at < source.size(); at += width) {
    store(source.data() + at, key.src, 0, pattern(static_cast<std::int64_t>(at / width)));
  }
  sets_.push_back(make_operands(device, source));
  const Operands& first = sets_.front();
  const std::size_t bytes = first.a->bytes() + first.b->bytes() + first.dst->bytes();
  const std::size_t wanted = std::min(kMostSets, kColdBytes / std::max<std::size_t>(bytes, 1) + 1);
  while (sets_.size() < wanted) sets_.push_back(make_operands(device, source));
}

Operands Bench::make_operands(Device& device, const std::vector<std::byte>& source) {
  const auto make = [&](std::unique_ptr<DeviceMemory>& memory, const Shape& shape, DType dtype) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    memory = device.allocate(bytes, "measuring a matrix product");
    return Tensor{memory->address(), dtype, shape};
  };
  const auto fill = [&](const Tensor& tensor, std::int64_t shift) {
    const std::size_t chunk = kChunk * size_of(key_.src);
    for (std::size_t at = 0; at < tensor.bytes(); at += chunk) {
      lane_->copy_in(tensor.as<std::byte>() + at,
                     source.data() + static_cast<std::size_t>(shift) * size_of(key_.src),
                     std::min(chunk, tensor.bytes() - at));
    }
  };
  Operands set;
  const auto [m, n, k] = std::array{key_.m, key_.n, key_.k};
  set.args.a = make(set.a, key_.transpose_a ? Shape{k, m} : Shape{m, k}, key_.src);
  set.args.b = make(set.b, key_.transpose_b ? Shape{n, k} : Shape{k, n}, key_.src);
  if (key_.bias) set.args.bias = make(set.bias, Shape{n}, key_.src);
  set.args.dst = make(set.dst, Shape{m, n}, key_.dst);
  fill(set.args.a, 0);
  fill(set.args.b, kShift);
  if (key_.bias) fill(set.args.bias, 0);
  set.args.transpose_a = key_.transpose_a;
  set.args.transpose_b = key_.transpose_b;
  set.args.accumulate = key_.accumulate;
  lane_->wait();
  return set;
}

double Bench::expected(std::int64_t row, std::int64_t col, double before) const {
  double sum = key_.accumulate ? before : 0.0;
  if (key_.bias) sum += pattern(col);
  for (std::int64_t i = 0; i < key_.k; ++i) {
    const std::int64_t a = key_.transpose_a ? i * key_.m + row : row * key_.k + i;
    const std::int64_t b = key_.transpose_b ? col * key_.k + i : i * key_.n + col;
    sum += pattern(a) * pattern(b + kShift);
  }
  return sum;
}

std::string Bench::check(const Candidate<MatmulArgs>& candidate, double& seconds) {
  struct Sample {
    std::int64_t row, col;
    alignas(8) std::array<std::byte, 4> value;
  };
  constexpr std::int64_t kSamples = 24;
  // A call that leaves an entry alone must not pass: overwritten entries start as NaN.
  const double before = key_.accumulate ? 0.5 : std::numeric_limits<double>::quiet_NaN();
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    // Spread over the matrix; the first and the last entry are among them.
    Sample sample{(key_.m - 1) * i / (kSamples - 1),
                  i == kSamples - 1 ? key_.n - 1 : (key_.n - 1) * (i * 7 % kSamples) / kSamples,
                  {}};
    store(sample.value.data(), key_.dst, 0, before);
    samples.push_back(sample);
  }
  const MatmulArgs& args = sets_.front().args;
  const auto address = [&](const Sample& sample) {
    return args.dst.as<std::byte>() +
           static_cast<std::size_t>(sample.row * key_.n + sample.col) * size_of(key_.dst);
  };
  for (Sample& sample : samples) {
    lane_->copy_in(address(sample), sample.value.data(), size_of(key_.dst));
  }
  lane_->wait();
  const double begin = now(clock_);
  lane_->submit(make_call(args, candidate));
  lane_->wait();
  seconds = now(clock_) - begin;
  for (Sample& sample : samples) {
    lane_->copy_out(sample.value.data(), address(sample), size_of(key_.dst));
  }
  lane_->wait();
  for (const Sample& sample : samples) {
    const double want = expected(sample.row, sample.col, before);
    const double got = load(sample.value.data(), key_.dst, 0);
    const double rounding = key_.dst == DType::bf16  ? 0x1p-7
                            : key_.dst == DType::f16 ? 0x1p-10
                                                     : 0x1p-20;
    // The noise of a sum of k terms of either sign is far below this; a missing term is above it.
    const double tolerance =
        1e-4 * std::sqrt(static_cast<double>(key_.k)) + rounding * std::abs(want);
    if (!(std::abs(got - want) <= tolerance)) {
      return fmt::format("wrong result: {} instead of {} at [{}, {}]", got, want, sample.row,
                         sample.col);
    }
  }
  return {};
}

double Bench::time(const Candidate<MatmulArgs>& candidate, int calls) {
  const double begin = now(clock_);
  for (int i = 0; i < calls; ++i) {
    lane_->submit(make_call(sets_[next_].args, candidate));
    next_ = (next_ + 1) % sets_.size();
  }
  lane_->wait();
  return (now(clock_) - begin) / calls;
}

struct Contender {
  const Candidate<MatmulArgs>* candidate = nullptr;
  std::size_t index = 0;
  double first_s = 0;
  std::vector<double> samples;

  [[nodiscard]] double best() const {
    return samples.empty() ? first_s : *std::min_element(samples.begin(), samples.end());
  }
  [[nodiscard]] double median() const {
    if (samples.empty()) return first_s;
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

void run_rounds(Bench& bench, std::vector<Contender>& contenders, const TuneOptions& options) {
  constexpr double kHopeless = 1.5;  // times the best: not worth another round
  const double end = now() + options.seconds;
  for (int round = 0; round < options.repeats; ++round) {
    double best = std::numeric_limits<double>::infinity();
    for (const Contender& contender : contenders) best = std::min(best, contender.best());
    for (Contender& contender : contenders) {
      const double last = contender.best();
      if (round > 0 && last > kHopeless * best) continue;
      if (now() + last > end) continue;
      const double calls = std::clamp(kSampleSeconds / last, 1.0, 1000.0);
      contender.samples.push_back(bench.time(*contender.candidate, static_cast<int>(calls)));
    }
  }
}

}  // namespace

std::vector<MatmulTiming> time_matmul(Device& device, const MatmulKey& key,
                                      const TuneOptions& options) {
  const auto& candidates = std::get<Candidates<MatmulArgs>>(device.kernels().candidates);
  Bench bench(device, key, options.processor_time);
  std::vector<MatmulTiming> timings;
  std::vector<Contender> contenders;
  for (const Candidate<MatmulArgs>& candidate : candidates) {
    MatmulTiming timing{std::string(candidate.name), 0, 0, {}};
    const char* reason = candidate.declines != nullptr ? candidate.declines(bench.args()) : nullptr;
    if (reason != nullptr) {
      timing.problem = reason;
    } else if (!candidate.name.starts_with(options.only) && &candidate != &candidates.back()) {
      timing.problem = "not asked for";
    } else if (&candidate == &candidates.back() && !contenders.empty()) {
      timing.problem = "the plain definition is not timed beside others";
    } else {
      Contender contender{&candidate, timings.size(), 0, {}};
      timing.problem = bench.check(candidate, contender.first_s);
      if (timing.problem.empty()) {
        contenders.push_back(contender);
      } else {
        log::warn("matrix product {}: {} gives a {}; it will not be used", key.text(),
                  candidate.name, timing.problem);
      }
    }
    timings.push_back(std::move(timing));
  }
  run_rounds(bench, contenders, options);
  for (const Contender& contender : contenders) {
    timings[contender.index].best_s = contender.best();
    timings[contender.index].median_s = contender.median();
  }
  return timings;
}

MatmulChoice choose_matmul(const MatmulKey& key, std::span<const MatmulTiming> timings,
                           const TuneOptions& options) {
  const MatmulTiming* chosen = nullptr;
  for (const MatmulTiming& timing : timings) {
    if (!timing.problem.empty()) continue;
    if (chosen == nullptr || timing.best_s < chosen->best_s) chosen = &timing;
  }
  if (chosen == nullptr) {
    fail(ExitCode::failure, "no kernel computes the matrix product {} correctly here", key.text());
  }
  for (const MatmulTiming& timing : timings) {
    if (timing.kernel == options.preferred && timing.problem.empty() &&
        timing.best_s <= chosen->best_s * (1 + options.preference)) {
      chosen = &timing;
    }
  }
  const double flops =
      2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
  return {chosen->kernel, flops / chosen->median_s};
}

MatmulChoice tune_matmul(Device& device, const MatmulKey& key, const TuneOptions& options) {
  return choose_matmul(key, time_matmul(device, key, options), options);
}

void tune_matmuls(Device& device, std::span<const MatmulKey> keys, const std::string& cache_path,
                  const TuneOptions& options, const TuneCallback& progress) {
  const auto& candidates = std::get<Candidates<MatmulArgs>>(device.kernels().candidates);
  if (candidates.size() < 2) return;
  std::unordered_set<MatmulKey, MatmulKeyHash> seen;
  std::vector<MatmulKey> wanted;
  for (const MatmulKey& key : keys) {
    if (seen.insert(key).second) wanted.push_back(key);
  }
  const auto known = [&](const std::string& kernel) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const auto& candidate) { return candidate.name == kernel; });
  };
  MatmulCache cache(cache_path, cpu_matmul_identity());
  TuneProgress state;
  state.total = wanted.size();
  bool changed = false;
  for (const MatmulKey& key : wanted) {
    const MatmulChoice* kept = cache.find(key);
    state.measured = kept == nullptr || !known(kept->kernel);
    state.choice = state.measured ? tune_matmul(device, key, options) : *kept;
    if (state.measured) cache.set(key, state.choice);
    changed = changed || state.measured;
    device.matmul_choices().set(key, state.choice);
    state.key = key;
    ++state.done;
    if (progress) progress(state);
  }
  if (changed) cache.save();
}

}  // namespace belay
