#include "belay/model/sampler.h"

#include <algorithm>
#include <cmath>

#include "belay/base/error.h"
#include "belay/base/philox.h"

namespace belay {
namespace {

constexpr std::uint32_t kSamplerStream = 0x53414d50U;

}  // namespace

void check_sampler(const SamplerConfig& config) {
  if (!(config.temperature >= 0.0) || !std::isfinite(config.temperature)) {
    fail(ExitCode::usage, "temperature is {}; it must be 0 (greedy) or above", config.temperature);
  }
  if (config.top_k < 0) {
    fail(ExitCode::usage, "top-k is {}; it must be 0 (all) or above", config.top_k);
  }
  if (!(config.top_p > 0.0) || config.top_p > 1.0) {
    fail(ExitCode::usage, "top-p is {}; it must be above 0 and at most 1", config.top_p);
  }
}

std::int32_t Sampler::sample(std::span<const float> logits, std::uint64_t index) {
  if (!std::all_of(logits.begin(), logits.end(),
                   [](float logit) { return std::isfinite(logit); })) {
    fail(ExitCode::numerics,
         "the model's logits are not finite at token {}; its weights are damaged "
         "or diverged: try an earlier snapshot",
         index);
  }
  const auto best = std::max_element(logits.begin(), logits.end());
  if (config_.temperature == 0.0) return static_cast<std::int32_t>(best - logits.begin());

  entries_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    entries_.push_back({logits[id], static_cast<std::int32_t>(id)});
  }
  const auto likelier = [](const Entry& a, const Entry& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto k = static_cast<std::size_t>(config_.top_k);
  if (k > 0 && k < entries_.size()) {
    std::nth_element(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(k),
                     entries_.end(), likelier);
    entries_.resize(k);
  }
  std::sort(entries_.begin(), entries_.end(), likelier);

  const auto weight = [&](const Entry& entry) {
    return std::exp(static_cast<double>(entry.logit - *best) / config_.temperature);
  };
  double total = 0;
  for (const Entry& entry : entries_) total += weight(entry);
  double kept = 0;
  std::size_t count = 0;
  while (count < entries_.size() && (count == 0 || kept < config_.top_p * total)) {
    kept += weight(entries_[count++]);
  }
  const PhiloxBlock words = random_block({config_.seed, 0, kSamplerStream}, index);
  double left = (static_cast<double>(words[0]) * 0x1p-32) * kept;
  for (std::size_t i = 0; i < count; ++i) {
    left -= weight(entries_[i]);
    if (left < 0.0) return entries_[i].id;
  }
  return entries_[count - 1].id;
}

}  // namespace belay
