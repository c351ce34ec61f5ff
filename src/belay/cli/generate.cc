// belay generate

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/data/tokenizer.h"
#include "belay/model/continuation.h"
#include "belay/plan/plan.h"
#include "belay/snapshot/convert.h"
#include "belay/train/loaded_model.h"

namespace belay {
namespace {

struct Arguments {
  std::string model;
  std::string tokenizer;
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::string dtype = "f32";
  std::string device = "cpu";
  std::int64_t max_tokens = 0;  // 0: as many as fit, at most kDefaultTokens
  std::int64_t samples = 1;
  std::int64_t batch = 0;  // 0: one per prompt, at most kDefaultBatch
  std::string kv_cache = "paged";
  std::int64_t kv_block = 16;
  std::int64_t kv_pool = 0;
  bool ignore_end = false;
  bool json = false;
  SamplerConfig sampler{0.8, 40, 0.95, 1};
};

constexpr std::int64_t kDefaultTokens = 200;
constexpr std::int64_t kDefaultBatch = 16;

std::vector<std::string> read_prompts(const Arguments& a) {
  std::vector<std::string> prompts = a.prompts;
  for (std::string& prompt : prompts) {
    if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (!a.prompts_file.empty()) {
    std::istringstream lines(read_file(a.prompts_file));
    for (std::string line; std::getline(lines, line);) prompts.push_back(line);
    if (prompts.empty()) fail(ExitCode::data, "{}: no prompt in this file", a.prompts_file);
  }
  if (prompts.empty()) prompts.emplace_back();
  return prompts;
}

std::vector<std::int32_t> encode_prompt(const data::Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  if (ids.empty()) {
    // An empty prompt is the start of a document, which follows the end of another.
    const auto start =
        tokenizer.begin_of_document() ? tokenizer.begin_of_document() : tokenizer.end_of_document();
    if (!start) fail(ExitCode::usage, "the prompt is empty and the tokenizer has no start token");
    ids.push_back(*start);
  }
  return ids;
}

// The job of prompt `index`; the seed is that of its first sample.
ContinuationJob make_job(const Arguments& a, const ModelConfig& model,
                         std::vector<std::int32_t> prompt, std::size_t index) {
  for (const std::int32_t id : prompt) {
    if (id >= model.vocab) {
      fail(ExitCode::usage, "the tokenizer gives id {} but the model has {} rows; wrong tokenizer?",
           id, model.vocab);
    }
  }
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t left = model.seq_len - prompt_tokens;
  if (left <= 0) {
    fail(ExitCode::usage,
         "prompt {} has {} tokens and the model takes {}; shorten it to at most {}", index + 1,
         prompt_tokens, model.seq_len, model.seq_len - 1);
  }
  if (a.max_tokens > left) {
    fail(ExitCode::usage,
         "prompt {} of {} tokens + --max-tokens {} is more than the {} that the model takes; lower "
         "--max-tokens to {} or shorten the prompt",
         index + 1, prompt_tokens, a.max_tokens, model.seq_len, left);
  }
  ContinuationJob job{std::move(prompt), a.max_tokens, a.sampler};
  if (job.max_tokens == 0) job.max_tokens = std::min(kDefaultTokens, left);
  return job;
}

// Paged: the pool holds what the longest jobs that may run at once can come to need.
KvCacheConfig cache_config(const Arguments& a, std::span<const ContinuationJob> jobs,
                           std::int64_t batch) {
  KvCacheConfig cache;
  cache.storage = parse_kv_storage(a.kv_cache);
  cache.sequences = batch;
  std::vector<std::int64_t> tokens;
  for (const ContinuationJob& job : jobs) tokens.push_back(job.cached_tokens());
  std::sort(tokens.begin(), tokens.end(), std::greater<>());
  cache.max_tokens = tokens.front();
  // A block longer than any sequence would only take memory.
  cache.block_tokens = std::min(a.kv_block, cache.max_tokens);
  if (cache.storage == KvStorage::contiguous) return cache;
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(batch)));
  cache.pool_tokens = a.kv_pool;
  if (a.kv_pool == 0) {
    for (const std::int64_t count : tokens) {
      cache.pool_tokens +=
          (count + cache.block_tokens - 1) / cache.block_tokens * cache.block_tokens;
    }
  }
  return cache;
}

struct Sample {
  std::string text;
  std::int64_t tokens = 0;
  bool ended = false;  // by the model's end-of-document token
  double seconds = 0;  // of drawing, the prompt not counted
  bool done = false;
};

// Collects samples as they are drawn and prints them in order; a single one at a time as it grows.
class Output {
 public:
  Output(const Arguments& a, const data::Tokenizer& tokenizer, const Generator& generator,
         std::span<const std::string> prompts, std::span<const ContinuationJob> jobs)
      : a_(a),
        tokenizer_(tokenizer),
        generator_(generator),
        prompts_(prompts),
        jobs_(jobs),
        samples_(jobs.size()),
        streams_(!a.json && generator.sequences() == 1) {}

  void token(std::size_t job, std::int32_t id) {
    Sample& sample = samples_[job];
    if (streams_ && sample.tokens == 0) print_prompt(job);
    ++sample.tokens;
    // Rows of padded vocabularies stand for nothing.
    const std::string piece = id < tokenizer_.vocab_size() ? tokenizer_.token_bytes(id) : "";
    sample.text += piece;
    if (!streams_) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  }

  void done(std::size_t job, bool ended, double seconds) {
    Sample& sample = samples_[job];
    if (streams_ && sample.tokens == 0) print_prompt(job);
    sample.ended = ended;
    sample.seconds = seconds;
    sample.done = true;
    for (; printed_ < samples_.size() && samples_[printed_].done; ++printed_) print(printed_);
    std::fflush(stdout);
  }

 private:
  void print_prompt(std::size_t job) const {
    const std::size_t prompt = job % prompts_.size();
    const bool typed = prompt >= a_.prompts.size() || a_.prompts[prompt] != "-";
    if (typed) fmt::print("{}", prompts_[prompt]);
  }

  void print(std::size_t job) const {
    const Sample& sample = samples_[job];
    const double rate =
        sample.seconds > 0 ? static_cast<double>(sample.tokens) / sample.seconds : 0;
    if (!a_.json) {
      if (!streams_) {
        print_prompt(job);
        fmt::print("{}", sample.text);
      }
      fmt::print("\n");
      log::debug("{} tokens, {:.1f} tokens/s", sample.tokens, rate);
      return;
    }
    const KvCache& cache = generator_.cache();
    const nlohmann::ordered_json line = {{"prompt", job % prompts_.size()},
                                         {"prompt_tokens", jobs_[job].prompt.size()},
                                         {"tokens", sample.tokens},
                                         {"ended", sample.ended},
                                         {"tokens_per_s", rate},
                                         {"cache_bytes", cache.reserved_bytes()},
                                         {"cache_used_bytes", cache.peak_bytes()},
                                         {"cache_bytes_per_token", cache.bytes_per_token()},
                                         {"text", sample.text}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  const Arguments& a_;
  const data::Tokenizer& tokenizer_;
  const Generator& generator_;
  std::span<const std::string> prompts_;
  std::span<const ContinuationJob> jobs_;
  std::vector<Sample> samples_;
  bool streams_;
  std::size_t printed_ = 0;
};

void report_cache(const Generator& generator, const ModelConfig& model) {
  const KvCache& cache = generator.cache();
  const std::size_t used = cache.peak_bytes();
  const auto full =
      static_cast<std::size_t>(generator.sequences() * model.seq_len) * cache.bytes_per_token();
  const auto text = [](std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const auto less = [&](std::size_t bytes, std::size_t than) {
    return fmt::format("{:.1f}% less than",
                       100.0 * (1.0 - static_cast<double>(bytes) / static_cast<double>(than)));
  };
  log::info(
      "keys and values: {} reserved, at most {} used at a time; used is {} {} for whole "
      "sequences of {} tokens",
      text(cache.reserved_bytes()), text(used), less(used, full), text(full), model.seq_len);
  if (model.heads == model.kv_heads) return;
  const std::size_t ungrouped = cache.ungrouped(used);
  log::info("{} heads share the keys and values of {}: {} {} with one each", model.heads,
            model.kv_heads, less(used, ungrouped), text(ungrouped));
}

void run(const Arguments& a) {
  check_sampler(a.sampler);
  if (a.kv_pool != 0 && parse_kv_storage(a.kv_cache) == KvStorage::contiguous) {
    fail(ExitCode::usage, "--kv-pool sizes a paged cache; drop it or --kv-cache contiguous");
  }
  const DType compute = parse_compute_dtype(a.dtype);
  const std::string dir = resolve_snapshot(a.model);
  const auto tokenizer = data::load_tokenizer(a.tokenizer.empty() ? dir : a.tokenizer);
  const std::vector<std::string> prompts = read_prompts(a);
  std::vector<std::vector<std::int32_t>> encoded;
  for (const std::string& prompt : prompts) encoded.push_back(encode_prompt(*tokenizer, prompt));
  const auto model = load_model(dir, a.device, compute);

  std::vector<ContinuationJob> jobs;
  for (std::int64_t sample = 0; sample < a.samples; ++sample) {
    for (std::size_t prompt = 0; prompt < prompts.size(); ++prompt) {
      jobs.push_back(make_job(a, model->config, encoded[prompt], prompt));
      jobs.back().sampler.seed += jobs.size() - 1;
    }
  }
  const auto count = static_cast<std::int64_t>(prompts.size());
  const std::int64_t batch = a.batch > 0 ? a.batch : std::min(kDefaultBatch, count);
  Generator generator(*model->device, model->config, *model->store, cache_config(a, jobs, batch));
  const auto end = a.ignore_end ? std::nullopt : tokenizer->end_of_document();
  Output output(a, *tokenizer, generator, prompts, jobs);
  ContinuationEvents events;
  events.token = [&](std::size_t job, std::int32_t id) { output.token(job, id); };
  events.done = [&](std::size_t job, bool ended, double seconds) {
    output.done(job, ended, seconds);
  };
  continue_all(generator, jobs, end, events);
  report_cache(generator, model->config);
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model");
  auto a = std::make_shared<Arguments>();
  command->add_option("model", a->model, "Run directory, snapshot or Hugging Face directory")
      ->required();
  command
      ->add_option("--prompt", a->prompts,
                   "Text to continue; '-': standard input; several: a sequence each, at once")
      ->allow_extra_args(false);
  command->add_option("--prompts", a->prompts_file, "File with a prompt a line, as more --prompt")
      ->type_name("FILE");
  command
      ->add_option("--max-tokens", a->max_tokens,
                   "Tokens to draw; 0: as many as the model takes, at most 200")
      ->check(at_least_zero())
      ->capture_default_str();
  command
      ->add_option("--samples", a->samples,
                   "Continuations of each prompt; all of them have seeds SEED, SEED+1, ...")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option("--batch", a->batch,
                   "Sequences at once, at most 128; 0: as many as prompts, at most 16")
      ->check(at_least_zero())
      ->capture_default_str();
  command
      ->add_option("--kv-cache", a->kv_cache,
                   "Keys and values in blocks given out as sequences grow (paged), or whole "
                   "sequences (contiguous)")
      ->capture_default_str();
  command->add_option("--kv-block", a->kv_block, "Tokens per block of a paged cache")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--kv-pool", a->kv_pool,
                   "Tokens that a paged cache holds of all sequences; 0: enough for --batch; with "
                   "fewer, the latest prompts wait")
      ->check(at_least_zero())
      ->capture_default_str();
  command->add_option("--temperature", a->sampler.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", a->sampler.top_k, "Keep the K most likely; 0: all")
      ->capture_default_str();
  command->add_option("--top-p", a->sampler.top_p, "Then the smallest set of this probability")
      ->capture_default_str();
  command->add_option("--seed", a->sampler.seed, "Same seed, same text")->capture_default_str();
  command->add_option("--tokenizer", a->tokenizer, "Default: the one in the model's directory");
  command->add_option("--dtype", a->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--device", a->device, "cpu or reference")->capture_default_str();
  command->add_flag("--ignore-end", a->ignore_end, "Go on behind the end of a document");
  command->add_flag("--json", a->json, "One JSON object a sample instead of streamed text");
  command->footer(
      "Examples:\n"
      "  belay generate runs/a --prompt 'The sea' --max-tokens 100\n"
      "  belay generate runs/a/snapshots/step-00001000 --prompt '春天' --temperature 0 --json");
  command->callback([a] { run(*a); });
}

}  // namespace belay
