#pragma once
// Continues many prompts: as many at once as the generator has sequences and its cache has room
// for, the others in order as those end.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "belay/model/generator.h"

namespace belay {

struct ContinuationJob {
  std::vector<std::int32_t> prompt;  // not empty
  std::int64_t max_tokens = 0;       // to draw, at least 1
  SamplerConfig sampler;

  // Tokens that may come to lie in the cache: the last one drawn never does.
  [[nodiscard]] std::int64_t cached_tokens() const {
    return static_cast<std::int64_t>(prompt.size()) + max_tokens - 1;
  }
};

struct ContinuationEvents {
  // A token of job `job`, in order for one job; jobs take turns.
  std::function<void(std::size_t job, std::int32_t token)> token;
  // The job is complete. ended: by `end`; seconds: of drawing, the prompt not counted.
  std::function<void(std::size_t job, bool ended, double seconds)> done;
};

// `end`: the token that ends a text and is not part of it; none: texts end at max_tokens. Error
// (capacity) before anything is drawn when one job alone is more than the cache holds, saying by
// how much.
void continue_all(Generator& generator, std::span<const ContinuationJob> jobs,
                  std::optional<std::int32_t> end, const ContinuationEvents& events);

}  // namespace belay
