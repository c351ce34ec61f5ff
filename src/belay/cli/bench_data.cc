// belay bench data: what the data path delivers, from text to batches.

#include <fmt/core.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/base/philox.h"
#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/data/loader.h"
#include "belay/data/pack.h"
#include "belay/observe/memory.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string data;
  std::string tokenizer = "bytes";
  std::int64_t megabytes = 64;
  std::int64_t rows = 16;
  std::int64_t seq_len = 256;
  double seconds = 1.0;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A directory that goes with the object.
class Workspace {
 public:
  Workspace() {
    std::string name = (fs::temp_directory_path() / "belay-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail(ExitCode::capacity, "{}: cannot create", name);
    path_ = name;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// Lines of made-up words of the lengths that text has; a document is a few hundred words.
void write_text(const std::string& path, std::int64_t bytes) {
  std::ofstream file(path);
  std::string line;
  std::int64_t written = 0;
  for (std::uint64_t document = 0; written < bytes; ++document) {
    const std::uint32_t words = 100 + random_block({.seed = 1}, document)[0] % 500;
    line = "{\"text\":\"";
    for (std::uint64_t word = 0; word < words; ++word) {
      const PhiloxBlock draw = random_block({.seed = 2, .step = words}, document * 1000 + word);
      const std::uint32_t length = 1 + draw[0] % 9;
      for (std::uint32_t i = 0; i < length; ++i) {
        line += static_cast<char>('a' + (draw[1] >> (3 * i)) % 8 + draw[2] % 18);
      }
      line += ' ';
    }
    line += "\"}\n";
    file << line;
    written += static_cast<std::int64_t>(line.size());
  }
  file.flush();
  if (!file) fail(ExitCode::capacity, "{}: cannot write {} bytes of text", path, bytes);
}

nlohmann::ordered_json bench_pack(const Options& o, const Workspace& workspace) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::vector<int> threads = {1};
  if (thread_count() > 1) threads.push_back(thread_count());
  for (const int count : threads) {
    data::PackOptions options;
    options.inputs = {workspace.file("text.jsonl")};
    options.out = workspace.file("store");
    options.tokenizer = o.tokenizer;
    options.append_eod = true;
    options.overwrite = true;
    options.threads = count;
    const data::PackReport report = data::pack(options);
    const double megabytes = static_cast<double>(report.counters.text_bytes) / 1e6;
    results.push_back(
        {{"threads", count},
         {"megabytes", megabytes},
         {"tokens", report.train.tokens},
         {"megabytes_per_s", megabytes / report.seconds},
         {"tokens_per_s", static_cast<double>(report.train.tokens) / report.seconds}});
  }
  return results;
}

// Tokens a second over `batches` batches, or for at least `seconds` if that is 0.
double loader_rate(const data::Dataset& dataset, const data::SampleOrder& order, const Options& o,
                   int workers, std::int64_t batches) {
  data::Loader loader(dataset, order, {.rows = o.rows, .workers = workers});
  std::int64_t done = 0;
  const auto begin = Clock::now();
  double elapsed = 0.0;
  do {
    for (int i = 0; i < 16; ++i) loader.next();
    done += 16;
    elapsed = seconds_since(begin);
  } while (batches > 0 ? done < batches : elapsed < o.seconds);
  return static_cast<double>(done * o.rows * o.seq_len) / elapsed;
}

nlohmann::ordered_json bench_loader(const Options& o, const std::string& path) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  const auto add = [&](const char* cache, int workers, double rate) {
    results.push_back({{"cache", cache}, {"workers", workers}, {"tokens_per_s", rate}});
  };
  {
    // The first pass of a fresh mapping takes a page fault for each page.
    const data::Dataset dataset = data::Dataset::open(path, o.seq_len);
    const data::SampleOrder order(1, dataset.samples());
    const std::int64_t pass = std::max<std::int64_t>(16, dataset.samples() / o.rows);
    add("first pass", 1, loader_rate(dataset, order, o, 1, pass));
  }
  const data::Dataset dataset = data::Dataset::open(path, o.seq_len);
  const data::SampleOrder order(1, dataset.samples());
  for (const int workers : {0, 1, 2}) {
    double best = 0.0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      best = std::max(best, loader_rate(dataset, order, o, workers, 0));
    }
    add("warm", workers, best);
  }
  return results;
}

void print(const nlohmann::ordered_json& result) {
  for (const auto& entry : result["pack"]) {
    fmt::print("pack    {:2} threads   {:8.1f} MB/s   {:12.0f} tokens/s\n",
               entry["threads"].get<int>(), entry["megabytes_per_s"].get<double>(),
               entry["tokens_per_s"].get<double>());
  }
  for (const auto& entry : result["loader"]) {
    fmt::print("loader  {:2} workers   {:<15} {:12.0f} tokens/s\n", entry["workers"].get<int>(),
               entry["cache"].get<std::string>(), entry["tokens_per_s"].get<double>());
  }
  fmt::print("peak memory {:.1f} MB\n", result["peak_rss_bytes"].get<double>() / 1e6);
}

void run(const Options& o) {
  const Workspace workspace;
  nlohmann::ordered_json result;
  std::string path = o.data;
  if (path.empty()) {
    write_text(workspace.file("text.jsonl"), o.megabytes * 1000000);
    result["pack"] = bench_pack(o, workspace);
    path = workspace.file("store");
  } else {
    result["pack"] = nlohmann::ordered_json::array();
  }
  result["rows"] = o.rows;
  result["seq_len"] = o.seq_len;
  result["loader"] = bench_loader(o, path);
  result["peak_rss_bytes"] = peak_resident_bytes();
  if (o.json) {
    fmt::print("{}\n", result.dump());
  } else {
    print(result);
  }
}

}  // namespace

void add_bench_data(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("data", "Packing of made-up text, and batches from a packed store");
  auto options = std::make_shared<Options>();
  command->add_option("--data", options->data, "Batches from this dataset; packs nothing");
  command->add_option("--tokenizer", options->tokenizer, "For packing")->capture_default_str();
  command->add_option("--megabytes", options->megabytes, "Text to pack")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--rows", options->rows, "Rows of a batch")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seq-len", options->seq_len, "Tokens of a row")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Time for each loader figure")
      ->check(above_zero())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Example:\n  belay bench data --tokenizer data/train/tokenizer.json --json");
  command->callback([options] { run(*options); });
}

}  // namespace belay
