// belay generate

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/data/tokenizer.h"
#include "belay/model/generator.h"
#include "belay/plan/plan.h"
#include "belay/snapshot/convert.h"
#include "belay/train/loaded_model.h"

namespace belay {
namespace {

struct Arguments {
  std::string model;
  std::string tokenizer;
  std::string prompt;
  std::string dtype = "f32";
  std::string device = "cpu";
  std::int64_t max_tokens = 0;  // 0: as many as fit, at most kDefaultTokens
  std::int64_t samples = 1;
  bool ignore_end = false;
  bool json = false;
  SamplerConfig sampler{0.8, 40, 0.95, 1};
};

constexpr std::int64_t kDefaultTokens = 200;

struct Sample {
  std::string text;
  std::int64_t tokens = 0;
  bool ended = false;  // by the model's end-of-document token
  double seconds = 0;  // of drawing, the prompt not counted
};

Sample draw(Generator& generator, const data::Tokenizer& tokenizer, const Arguments& a,
            std::span<const std::int32_t> prompt, std::uint64_t seed) {
  SamplerConfig config = a.sampler;
  config.seed = seed;
  Sampler sampler(config);
  generator.reset();
  std::span<const float> logits = generator.feed(prompt);
  const auto begin = std::chrono::steady_clock::now();
  Sample sample;
  while (sample.tokens < a.max_tokens) {
    const std::int32_t id = sampler.sample(logits, static_cast<std::uint64_t>(generator.length()));
    if (!a.ignore_end && tokenizer.end_of_document() == id) {
      sample.ended = true;
      break;
    }
    ++sample.tokens;
    // Rows of padded vocabularies stand for nothing.
    const std::string piece = id < tokenizer.vocab_size() ? tokenizer.token_bytes(id) : "";
    sample.text += piece;
    if (!a.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    if (sample.tokens < a.max_tokens) logits = generator.feed({&id, 1});
  }
  sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return sample;
}

std::vector<std::int32_t> encode_prompt(const data::Tokenizer& tokenizer, const Arguments& a) {
  std::string text = a.prompt;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
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

void run(Arguments a) {
  check_sampler(a.sampler);
  const DType compute = parse_compute_dtype(a.dtype);
  const std::string dir = resolve_snapshot(a.model);
  const auto tokenizer = data::load_tokenizer(a.tokenizer.empty() ? dir : a.tokenizer);
  const std::vector<std::int32_t> prompt = encode_prompt(*tokenizer, a);
  const auto model = load_model(dir, a.device, compute);
  for (const std::int32_t id : prompt) {
    if (id >= model->config.vocab) {
      fail(ExitCode::usage, "the tokenizer gives id {} but the model has {} rows; wrong tokenizer?",
           id, model->config.vocab);
    }
  }
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t left = model->config.seq_len - prompt_tokens;
  if (left <= 0) {
    fail(ExitCode::usage,
         "the prompt has {} tokens and the model takes {}; shorten it to at most {}", prompt_tokens,
         model->config.seq_len, model->config.seq_len - 1);
  }
  if (a.max_tokens == 0) a.max_tokens = std::min(kDefaultTokens, left);
  if (a.max_tokens > left) {
    fail(ExitCode::usage,
         "prompt of {} tokens + --max-tokens {} is more than the {} that the model takes; lower "
         "--max-tokens to {} or shorten the prompt",
         prompt_tokens, a.max_tokens, model->config.seq_len, left);
  }
  const std::int64_t room = prompt_tokens + a.max_tokens;
  Generator generator(*model->device, model->config, *model->store, room);
  log::debug("cached keys and values: {}",
             human_bytes(static_cast<double>(generator.cache_bytes())));
  for (std::int64_t index = 0; index < a.samples; ++index) {
    if (!a.json && a.prompt != "-") fmt::print("{}", a.prompt);
    const Sample sample =
        draw(generator, *tokenizer, a, prompt, a.sampler.seed + static_cast<std::uint64_t>(index));
    const double rate =
        sample.seconds > 0 ? static_cast<double>(sample.tokens) / sample.seconds : 0;
    if (a.json) {
      const nlohmann::ordered_json line = {{"prompt_tokens", prompt.size()},
                                           {"tokens", sample.tokens},
                                           {"ended", sample.ended},
                                           {"tokens_per_s", rate},
                                           {"cache_bytes", generator.cache_bytes()},
                                           {"text", sample.text}};
      fmt::print("{}\n",
                 line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      fmt::print("\n");
      log::debug("{} tokens, {:.1f} tokens/s", sample.tokens, rate);
    }
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model");
  auto a = std::make_shared<Arguments>();
  command->add_option("model", a->model, "Run directory, snapshot or Hugging Face directory")
      ->required();
  command->add_option("--prompt", a->prompt, "Text to continue; '-': standard input");
  command
      ->add_option("--max-tokens", a->max_tokens,
                   "Tokens to draw; 0: as many as the model takes, at most 200")
      ->check(at_least_zero())
      ->capture_default_str();
  command->add_option("--samples", a->samples, "Continuations, with seeds SEED, SEED+1, ...")
      ->check(above_zero())
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
