#pragma once
// Draws the next token from logits.

#include <cstdint>
#include <span>
#include <vector>

namespace belay {

struct SamplerConfig {
  double temperature = 1.0;  // 0: always the most likely token
  std::int64_t top_k = 0;    // keep the k most likely; 0: all
  double top_p = 1.0;        // then the smallest set of at least this probability
                             // (Holtzman et al., arXiv:1904.09751)
  std::uint64_t seed = 1;
};

// Error(usage) naming the value and its range.
void check_sampler(const SamplerConfig& config);

class Sampler {
 public:
  explicit Sampler(const SamplerConfig& config) : config_(config) {}
  // The token drawn for position `index` of the output: a function of (logits, seed, index).
  std::int32_t sample(std::span<const float> logits, std::uint64_t index);

 private:
  struct Entry {
    float logit;
    std::int32_t id;
  };
  SamplerConfig config_;
  std::vector<Entry> entries_;
};

}  // namespace belay
