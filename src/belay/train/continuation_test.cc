// Many sequences out of one cache, against each on its own.

#include "belay/model/continuation.h"

#include <gtest/gtest.h>

#include "belay/base/error.h"
#include "belay/train/tiny_run.h"

namespace belay {
namespace {

constexpr std::int64_t kSeq = 24;

std::vector<std::int32_t> prompt_of(std::int64_t length, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i) {
    const PhiloxBlock words = random_block({seed, 0, 5}, static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(words[0] % 64));
  }
  return tokens;
}

std::vector<ContinuationJob> ragged_jobs() {
  std::vector<ContinuationJob> jobs;
  const std::vector<std::int64_t> lengths{1, 17, 3, 9, 5, 16};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    jobs.push_back({prompt_of(lengths[i], i + 1),
                    std::min<std::int64_t>(10, kSeq - lengths[i]),
                    {1.0, 0, 1.0, i}});
  }
  return jobs;
}

// Of k and v of all layers, f32.
std::size_t per_token(const ModelConfig& model) {
  return static_cast<std::size_t>(2 * model.layers * model.kv_heads * model.head_dim) * 4;
}

struct Texts {
  std::vector<std::vector<std::int32_t>> tokens;
  std::size_t peak_bytes = 0;
};

Texts run(testing::TinyRun& model, const KvCacheConfig& cache,
          const std::vector<ContinuationJob>& jobs, std::optional<std::int32_t> end = {}) {
  Generator generator(*model.device, model.model, model.program->parameters(), cache);
  Texts texts{std::vector<std::vector<std::int32_t>>(jobs.size()), 0};
  std::size_t done = 0;
  ContinuationEvents events;
  events.token = [&](std::size_t job, std::int32_t id) { texts.tokens[job].push_back(id); };
  events.done = [&](std::size_t, bool, double) { ++done; };
  continue_all(generator, jobs, end, events);
  EXPECT_EQ(done, jobs.size());
  EXPECT_EQ(generator.cache().blocks().used(), 0);
  texts.peak_bytes = generator.cache().peak_bytes();
  return texts;
}

// With one sequence at a time and whichever storage, the same kernels see the same numbers.
TEST(ContinuationTest, PagedAndContiguousCachesGiveTheSameBits) {
  for (const char* device : {"cpu", "reference", "guard"}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const testing::TinyRun run(testing::tiny_model(Family::llama, kSeq), 1, device, dtype);
      Generator paged(*run.device, run.model, run.program->parameters(),
                      {KvStorage::paged, 5, 2, kSeq, 0});
      Generator contiguous(*run.device, run.model, run.program->parameters(),
                           {KvStorage::contiguous, 0, 2, kSeq, 0});
      for (Generator* generator : {&paged, &contiguous}) {
        generator->feed(prompt_of(13, 1), 0);
        generator->feed(prompt_of(4, 2), 1);
      }
      std::vector<NextToken> next{{0, 7}, {1, 8}};
      for (int step = 0; step < 9; ++step) {
        const std::span<const float> a = paged.step(next);
        const std::span<const float> b = contiguous.step(next);
        ASSERT_EQ(a.size(), 128U);
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0)
            << device << " " << name_of(dtype) << " step " << step;
        next = {{1, static_cast<std::int32_t>(step)}, {0, static_cast<std::int32_t>(2 * step)}};
      }
    }
  }
}

TEST(ContinuationTest, SequencesTogetherAreTheSequencesAlone) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    testing::TinyRun model(testing::tiny_model(family, kSeq), 1);
    const std::vector<ContinuationJob> jobs = ragged_jobs();
    const Texts alone = run(model, {KvStorage::contiguous, 0, 1, kSeq, 0}, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(alone.tokens[i].size(), static_cast<std::size_t>(jobs[i].max_tokens));
    }
    for (const std::int64_t block : {1, 4, 16}) {
      const Texts together = run(model, {KvStorage::paged, block, 6, kSeq, 0}, jobs);
      EXPECT_EQ(together.tokens, alone.tokens) << "blocks of " << block;
    }
    // Pools that fill up: the youngest wait and go on later.
    for (const std::int64_t pool : {24, 32, 48}) {
      const Texts waiting = run(model, {KvStorage::paged, 4, 6, kSeq, pool}, jobs);
      EXPECT_EQ(waiting.tokens, alone.tokens) << "a pool of " << pool;
      EXPECT_LE(waiting.peak_bytes, static_cast<std::size_t>(pool) * per_token(model.model));
    }
  }
}

TEST(ContinuationTest, ATextEndsAtTheEndTokenAndReturnsItsBlocks) {
  testing::TinyRun model(testing::tiny_model(Family::llama, kSeq), 1);
  std::vector<ContinuationJob> jobs = ragged_jobs();
  const KvCacheConfig cache{KvStorage::paged, 4, 2, kSeq, 0};
  const Texts whole = run(model, cache, jobs);
  const std::int32_t end = whole.tokens[3][4];
  const Texts cut = run(model, cache, jobs, end);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& tokens = whole.tokens[i];
    const auto first = std::find(tokens.begin(), tokens.end(), end);
    EXPECT_EQ(cut.tokens[i], std::vector<std::int32_t>(tokens.begin(), first));
  }
}

TEST(ContinuationTest, BytesFollowTheBlocksInUse) {
  testing::TinyRun model(testing::tiny_model(Family::llama, kSeq), 1);
  // Together 11 tokens need blocks of 4 for 8 and 4; a contiguous cache has two whole sequences.
  const std::vector<ContinuationJob> jobs{{prompt_of(5, 1), 2, {}}, {prompt_of(2, 2), 3, {}}};
  const std::size_t token = per_token(model.model);
  EXPECT_EQ(token, 256U);
  const Texts paged = run(model, {KvStorage::paged, 4, 2, kSeq, 0}, jobs);
  EXPECT_EQ(paged.peak_bytes, (8 + 4) * token);
  const Texts contiguous = run(model, {KvStorage::contiguous, 0, 2, kSeq, 0}, jobs);
  EXPECT_EQ(contiguous.peak_bytes, 2 * kSeq * token);
  Generator generator(*model.device, model.model, model.program->parameters(),
                      {KvStorage::paged, 4, 2, kSeq, 0});
  EXPECT_EQ(generator.cache().bytes_per_token(), token);
  EXPECT_EQ(generator.cache().ungrouped(token), 2 * token);
}

// The message says how much is lacking.
void expect_capacity(const std::function<void()>& body, const std::string& lacking) {
  try {
    body();
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
    EXPECT_NE(std::string(error.what()).find(lacking), std::string::npos) << error.what();
  }
}

TEST(ContinuationTest, APoolThatIsTooSmallIsAnErrorThatSaysByHowMuch) {
  testing::TinyRun model(testing::tiny_model(Family::llama, kSeq), 1);
  // 17 + 7 - 1 tokens are 6 blocks of 4.
  expect_capacity(
      [&] {
        run(model, {KvStorage::paged, 4, 6, kSeq, 16}, ragged_jobs());
      },
      "8 tokens or 2048 bytes are lacking");
  Generator generator(*model.device, model.model, model.program->parameters(),
                      {KvStorage::paged, 4, 2, kSeq, 16});
  generator.feed(prompt_of(9, 1), 0);
  expect_capacity([&] { generator.feed(prompt_of(7, 2), 1); }, "needs 4 more");
  generator.reset(0);
  generator.reset(1);
  generator.feed(prompt_of(7, 2), 1);
  EXPECT_EQ(generator.length(1), 7);
}

}  // namespace
}  // namespace belay
