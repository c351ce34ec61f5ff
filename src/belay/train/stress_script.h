#pragma once
// What happens in a stress run, step by step, and the tokens that it learns from. All of it is a
// function of (scenario, length of the run, seed), so every run of a scenario meets the same.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "belay/train/program.h"

namespace belay {

enum class StressScenario : std::uint8_t {
  spike,  // gradients are 2^17-fold from one step to the next, for 40 steps
  drift,  // gradients grow steadily to 2^17-fold in as many steps as came before, and stay there
  bad_batch,  // 40 batches of one repeated token with losses that weigh 2^17-fold
  outlier,    // one row of the embedding, which is the head too, is 2^14-fold for 40 steps
};

std::string_view name_of(StressScenario scenario);
std::span<const std::string_view> stress_scenario_names();
std::optional<StressScenario> parse_stress_scenario(std::string_view name);

// Shortest run that a script fits into.
inline constexpr std::int64_t kFewestStressSteps = 160;

class StressScript {
 public:
  StressScript(StressScenario scenario, std::int64_t steps);

  // What the gradient of the loss is multiplied by in a step, beside the loss scale.
  [[nodiscard]] double gradient_factor(std::int64_t step) const;
  // Whether the step's batch is one token, over and over.
  [[nodiscard]] bool repeats_a_token(std::int64_t step) const;
  // What the outlier's row is multiplied by before the step; 1: nothing happens.
  [[nodiscard]] double row_factor(std::int64_t step) const;

  // First step of the event, 251 or after a quarter of a shorter run, and the one after its last.
  [[nodiscard]] std::int64_t begin() const { return begin_; }
  [[nodiscard]] std::int64_t end() const { return end_; }

 private:
  [[nodiscard]] bool within(std::int64_t step) const { return step >= begin_ && step < end_; }

  StressScenario scenario_;
  std::int64_t begin_;
  std::int64_t end_;
};

// A first-order Markov chain: every token has four successors, taken with probabilities 1/2, 1/4,
// 1/8 and 1/8. Its entropy is 1.75 bits (1.213 nats, perplexity 3.364) where the successors differ:
// no model is better.
class MarkovTokens {
 public:
  MarkovTokens(std::int64_t vocab, std::uint64_t seed);

  // Rows of seq_len tokens, each a document of its own, and for every token the next as target.
  // Batches with different numbers are independent.
  void fill(std::uint32_t batch, std::int64_t rows, std::int64_t seq_len);
  // The same with one token only.
  void fill_with(std::int32_t token, std::int64_t rows, std::int64_t seq_len);
  // What was filled last.
  [[nodiscard]] HostBatch batch() const;

 private:
  void shape(std::int64_t rows, std::int64_t seq_len);

  std::uint64_t seed_;
  std::vector<std::array<std::int32_t, 4>> successors_;
  std::int64_t rows_ = 0;
  std::vector<std::int32_t> tokens_, targets_, positions_, doc_begin_;
};

}  // namespace belay
