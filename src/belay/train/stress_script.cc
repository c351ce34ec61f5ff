#include "belay/train/stress_script.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "belay/base/check.h"
#include "belay/base/philox.h"

namespace belay {
namespace {

// In the order of the enumerators.
constexpr std::string_view kNames[] = {"spike", "drift", "bad-batch", "outlier"};

constexpr double kLog2Growth = 17;
constexpr std::int64_t kLongestStart = 250;  // steps before the event
constexpr std::int64_t kEventSteps = 40;
constexpr double kLog2Outlier = 14;

constexpr std::uint32_t kChainStream = 31;
constexpr std::uint32_t kTokenStream = 32;

}  // namespace

std::string_view name_of(StressScenario scenario) {
  return kNames[static_cast<std::size_t>(scenario)];
}

std::span<const std::string_view> stress_scenario_names() {
  return kNames;
}

std::optional<StressScenario> parse_stress_scenario(std::string_view name) {
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<StressScenario>(found - std::begin(kNames));
}

StressScript::StressScript(StressScenario scenario, std::int64_t steps)
    : scenario_(scenario),
      begin_(std::min(kLongestStart, steps / 4) + 1),
      end_(begin_ + kEventSteps) {
  BELAY_CHECK(steps >= kFewestStressSteps);
}

double StressScript::gradient_factor(std::int64_t step) const {
  switch (scenario_) {
    case StressScenario::spike:
    case StressScenario::bad_batch:
      return within(step) ? std::exp2(kLog2Growth) : 1.0;
    case StressScenario::drift: {
      // Over as many steps as came before.
      const double progress =
          static_cast<double>(step - begin_ + 1) / static_cast<double>(begin_ - 1);
      return std::exp2(kLog2Growth * std::clamp(progress, 0.0, 1.0));
    }
    case StressScenario::outlier:
      break;
  }
  return 1.0;
}

bool StressScript::repeats_a_token(std::int64_t step) const {
  return scenario_ == StressScenario::bad_batch && within(step);
}

double StressScript::row_factor(std::int64_t step) const {
  if (scenario_ != StressScenario::outlier) return 1.0;
  if (step == begin_) return std::exp2(kLog2Outlier);
  return step == end_ ? std::exp2(-kLog2Outlier) : 1.0;
}

MarkovTokens::MarkovTokens(std::int64_t vocab, std::uint64_t seed)
    : seed_(seed), successors_(static_cast<std::size_t>(vocab)) {
  const auto size = static_cast<std::uint32_t>(vocab);
  for (std::size_t token = 0; token < successors_.size(); ++token) {
    const PhiloxBlock words = random_block({seed, 0, kChainStream}, token);
    for (std::size_t i = 0; i < words.size(); ++i) {
      successors_[token][i] = static_cast<std::int32_t>(words[i] % size);
    }
  }
}

void MarkovTokens::shape(std::int64_t rows, std::int64_t seq_len) {
  rows_ = rows;
  const auto count = static_cast<std::size_t>(rows * seq_len);
  tokens_.resize(count);
  targets_.resize(count);
  doc_begin_.assign(count, 0);
  positions_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    positions_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % seq_len);
  }
}

void MarkovTokens::fill(std::uint32_t batch, std::int64_t rows, std::int64_t seq_len) {
  shape(rows, seq_len);
  // One more draw per row than tokens: the target of the last.
  constexpr std::array<std::size_t, 8> kChoice = {0, 0, 0, 0, 1, 1, 2, 3};
  std::size_t at = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<std::uint64_t>(row * (seq_len + 1));
    const RandomKey key{seed_, batch, kTokenStream};
    auto token = static_cast<std::int32_t>(random_block(key, first)[0] % successors_.size());
    for (std::int64_t i = 0; i < seq_len; ++i, ++at) {
      const PhiloxBlock words = random_block(key, first + 1 + static_cast<std::uint64_t>(i));
      tokens_[at] = token;
      token = successors_[static_cast<std::size_t>(token)][kChoice[words[0] % 8]];
      targets_[at] = token;
    }
  }
}

void MarkovTokens::fill_with(std::int32_t token, std::int64_t rows, std::int64_t seq_len) {
  shape(rows, seq_len);
  std::fill(tokens_.begin(), tokens_.end(), token);
  std::fill(targets_.begin(), targets_.end(), token);
}

HostBatch MarkovTokens::batch() const {
  return {rows_, tokens_.data(), targets_.data(), positions_.data(), doc_begin_.data()};
}

}  // namespace belay
