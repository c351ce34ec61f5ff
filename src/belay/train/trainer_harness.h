#pragma once
// For tests: whole runs of a tiny model in a directory of their own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/philox.h"
#include "belay/train/trainer.h"

namespace belay::testing {

class TrainerHarness : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("belay-trainer-" + std::to_string(::getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    write_tokens("train.bin", 10 * 16 + 1);
    write_tokens("val.bin", 1003);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (dir_ / name).string(); }

  // An llm.c token file (16-bit ids below 64).
  void write_tokens(const std::string& name, std::int32_t count) const {
    std::ofstream file(dir_ / name, std::ios::binary);
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = count;
    file.write(reinterpret_cast<const char*>(header.data()), 1024);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::uint32_t word = random_block({3, 0, 1}, static_cast<std::uint64_t>(i))[0];
      const auto id = static_cast<std::uint16_t>(word % 8 + static_cast<std::uint32_t>(i % 8) * 8);
      file.write(reinterpret_cast<const char*>(&id), 2);
    }
  }

  [[nodiscard]] RunConfig config(const std::vector<std::string>& overrides = {},
                                 int ranks = 1) const {
    std::vector<std::string> all = {"data.train=\"" + path("train.bin") + "\"",
                                    "data.val=\"" + path("val.bin") + "\""};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_config(R"(
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 64
seq_len = 16
[train]
steps = 15
micro_batch = 2
global_batch = 2
[optimizer]
lr = 1e-3
warmup_steps = 3
[observe]
console_every = 0
[machine]
matmul = "belay"
)",
                        "test", all, ranks);
  }

  [[nodiscard]] static TrainOptions to(const std::string& out, std::int64_t stop_at = 0,
                                       const std::string& resume = "") {
    TrainOptions options;
    options.out = out;
    options.stop_at = stop_at;
    options.resume = resume;
    return options;
  }

  // All records of metrics.jsonl.
  [[nodiscard]] static std::vector<nlohmann::json> records_of(const std::string& run) {
    std::vector<nlohmann::json> records;
    std::ifstream file(std::filesystem::path(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      records.push_back(nlohmann::json::parse(line));
    return records;
  }
  // Those of steps, by step.
  [[nodiscard]] static std::map<std::int64_t, nlohmann::json> steps(const std::string& run) {
    std::map<std::int64_t, nlohmann::json> records;
    for (const nlohmann::json& record : records_of(run)) {
      if (record.contains("loss")) records[record["step"].get<std::int64_t>()] = record;
    }
    return records;
  }

  std::filesystem::path dir_;
};

}  // namespace belay::testing
