#include "belay/model/continuation.h"

#include <chrono>
#include <deque>

#include "belay/base/error.h"

namespace belay {
namespace {

using Clock = std::chrono::steady_clock;

void check_fits(const KvCache& cache, std::span<const ContinuationJob> jobs) {
  const KvBlocks& blocks = cache.blocks();
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    const std::int64_t lacking =
        blocks.blocks_for(jobs[job].cached_tokens()) - blocks.pool_blocks();
    if (lacking <= 0) continue;
    const std::int64_t tokens = lacking * blocks.block_tokens();
    fail(ExitCode::capacity,
         "prompt {} of {} tokens and {} more do not fit into a cache of {} tokens: {} tokens or {} "
         "bytes are lacking; give the cache room for {} or draw fewer tokens",
         job + 1, jobs[job].prompt.size(), jobs[job].max_tokens, blocks.pool_rows(), tokens,
         static_cast<std::size_t>(tokens) * cache.bytes_per_token(), blocks.pool_rows() + tokens);
  }
}

class Continuation {
 public:
  Continuation(Generator& generator, std::span<const ContinuationJob> jobs,
               std::optional<std::int32_t> end, const ContinuationEvents& events)
      : generator_(generator), jobs_(jobs), end_(end), events_(events), texts_(jobs.size()) {
    for (std::int64_t sequence = generator.sequences(); sequence-- > 0;) {
      generator.reset(sequence);
      free_.push_back(sequence);
    }
    for (std::size_t job = 0; job < jobs.size(); ++job) waiting_.push_back(job);
  }

  void run() {
    while (true) {
      while (has_room_for_next()) start();
      if (running_.empty()) return;
      make_room();
      step();
    }
  }

 private:
  struct Text {
    std::vector<std::int32_t> tokens;  // the prompt and what has been drawn
    std::int64_t drawn = 0;
    Clock::time_point begin;
  };
  struct Running {
    std::size_t job;
    std::int64_t sequence;
    Sampler sampler;
    bool over = false;
  };

  [[nodiscard]] std::int64_t free_blocks() const {
    const KvBlocks& blocks = generator_.cache().blocks();
    return blocks.pool_blocks() - blocks.used();
  }

  // For its tokens, with a block left for each running job that may need one.
  [[nodiscard]] bool has_room_for_next() const {
    if (waiting_.empty() || free_.empty()) return false;
    const std::size_t job = waiting_.front();
    const std::size_t tokens =
        texts_[job].tokens.empty() ? jobs_[job].prompt.size() : texts_[job].tokens.size();
    const KvBlocks& blocks = generator_.cache().blocks();
    std::int64_t wanted = blocks.blocks_for(static_cast<std::int64_t>(tokens));
    for (const Running& running : running_) {
      const auto has = static_cast<std::int64_t>(blocks.blocks(running.sequence).size());
      if (has < blocks.blocks_for(jobs_[running.job].cached_tokens())) ++wanted;
    }
    return wanted <= free_blocks();
  }

  void start() {
    const std::size_t job = waiting_.front();
    waiting_.pop_front();
    Text& text = texts_[job];
    const bool fresh = text.tokens.empty();
    if (fresh) text.tokens = jobs_[job].prompt;
    running_.push_back({job, free_.back(), Sampler(jobs_[job].sampler)});
    free_.pop_back();
    const std::span<const float> logits = generator_.feed(text.tokens, running_.back().sequence);
    if (fresh) text.begin = Clock::now();
    draw(running_.back(), logits);
    if (running_.back().over) running_.pop_back();
  }

  // A block for every sequence whose last one is full. When there are too few, the youngest goes
  // back to the front of the queue; the oldest has room alone, so every job ends.
  void make_room() {
    while (true) {
      std::int64_t wanted = 0;
      for (const Running& running : running_) {
        const std::int64_t length = generator_.length(running.sequence);
        if (length % generator_.cache().blocks().block_tokens() == 0) ++wanted;
      }
      if (wanted <= free_blocks()) return;
      release(running_.back());
      waiting_.push_front(running_.back().job);
      running_.pop_back();
    }
  }

  void step() {
    next_.clear();
    for (const Running& running : running_) {
      next_.push_back({running.sequence, texts_[running.job].tokens.back()});
    }
    const std::span<const float> logits = generator_.step(next_);
    const std::size_t vocab = logits.size() / running_.size();
    for (std::size_t i = 0; i < running_.size(); ++i) {
      draw(running_[i], logits.subspan(i * vocab, vocab));
    }
    std::erase_if(running_, [](const Running& running) { return running.over; });
  }

  void draw(Running& running, std::span<const float> logits) {
    Text& text = texts_[running.job];
    const auto index = static_cast<std::uint64_t>(generator_.length(running.sequence));
    const std::int32_t token = running.sampler.sample(logits, index);
    const bool ended = end_ == token;
    if (!ended) {
      ++text.drawn;
      text.tokens.push_back(token);
      events_.token(running.job, token);
    }
    running.over = ended || text.drawn == jobs_[running.job].max_tokens;
    if (!running.over) return;
    release(running);
    const std::chrono::duration<double> taken = Clock::now() - text.begin;
    events_.done(running.job, ended, taken.count());
  }

  void release(const Running& running) {
    generator_.reset(running.sequence);
    free_.push_back(running.sequence);
  }

  Generator& generator_;
  std::span<const ContinuationJob> jobs_;
  std::optional<std::int32_t> end_;
  const ContinuationEvents& events_;
  std::vector<Text> texts_;          // of each job
  std::deque<std::size_t> waiting_;  // jobs
  std::vector<std::int64_t> free_;   // sequences
  std::vector<Running> running_;     // in the order of their start
  std::vector<NextToken> next_;
};

}  // namespace

void continue_all(Generator& generator, std::span<const ContinuationJob> jobs,
                  std::optional<std::int32_t> end, const ContinuationEvents& events) {
  check_fits(generator.cache(), jobs);
  Continuation(generator, jobs, end, events).run();
}

}  // namespace belay
