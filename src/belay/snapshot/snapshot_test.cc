#include "belay/snapshot/snapshot.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/safetensors.h"
#include "belay/snapshot/snapshot_files.h"
#include "belay/snapshot/snapshot_state.h"
#include "belay/snapshot/test_model.h"

namespace belay {
namespace {

using testing_support::filled;
using testing_support::Received;
using testing_support::TemporaryDirectory;
using testing_support::tiny_config;

SnapshotState some_state(std::int64_t step) {
  SnapshotState state;
  state.step = step;
  state.tokens = step * 4096;
  state.data_seed = std::numeric_limits<std::uint64_t>::max();
  state.data_epoch = 2;
  state.data_sample = 17;
  state.random_seed = 0x8000000000000001ULL;
  state.dtype = "bf16";
  state.schedule = {ScheduleKind::wsd, 1e-3, 0.1 + 0.2, 10, 100, 20};
  state.optimizer = {0.9, 0.95, 1e-8, 0.1, 1.0 / 3.0};
  state.config_toml = "[model]\nfamily = \"llama\" # \xe4\xb8\x96\xe7\x95\x8c\n";
  state.matmul_choices = "{\"linear 4x8x16 f32\":\"onednn\"}";
  state.extra = {{"loss", "3.25"}, {"note", "a\nb"}};
  return state;
}

class SnapshotTest : public testing::Test {
 protected:
  std::string save(std::int64_t step, const SnapshotOptions& options = {}) {
    const int salt = static_cast<int>(step) * 3;
    return save_snapshot(run_.path(), config_, table_, some_state(step),
                         {filled(salt), filled(salt + 1), filled(salt + 2)}, options);
  }
  void expect_loads(const std::string& dir, std::int64_t step) {
    Received weights(table_), m(table_), v(table_);
    const SnapshotState state =
        load_snapshot(dir, config_, table_, {weights.sink(), m.sink(), v.sink()});
    EXPECT_EQ(state, some_state(step));
    const int salt = static_cast<int>(step) * 3;
    weights.expect_filled(table_, salt);
    m.expect_filled(table_, salt + 1);
    v.expect_filled(table_, salt + 2);
  }
  std::string pointer() { return read_file(run_ / "snapshots/latest"); }
  std::string refusal(const std::string& dir, const ModelConfig& config,
                      ExitCode code = ExitCode::data) {
    const ParameterTable table = make_parameter_table(config);
    Received weights(table), m(table), v(table);
    try {
      load_snapshot(dir, config, table, {weights.sink(), m.sink(), v.sink()});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_TRUE(weights.untouched() && m.untouched() && v.untouched());
      return error.what();
    }
    return "accepted";
  }
  static void cut_one_byte(const std::string& path) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  }

  TemporaryDirectory run_;
  ModelConfig config_ = tiny_config(Family::qwen2, true);
  ParameterTable table_ = make_parameter_table(config_);
};

TEST(SnapshotState, SurvivesTheTrip) {
  EXPECT_EQ(parse_state(state_text(some_state(50)), "state.json"), some_state(50));
  EXPECT_THROW(parse_state("{\"step\":1}", "state.json"), Error);
  EXPECT_THROW(parse_state("{\"step\":1e300}", "state.json"), Error);
  EXPECT_THROW(parse_state("{\"step\":18446744073709551615}", "state.json"), Error);
}

TEST_F(SnapshotTest, SavesAndLoadsEveryFamilyBitForBit) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    for (const bool tied : {true, false}) {
      config_ = tiny_config(family, tied);
      table_ = make_parameter_table(config_);
      const std::string dir = save(7);
      expect_loads(dir, 7);
      // Tied: stored once. The vocabulary of 257 is stored without padding.
      const SafetensorsFile file = SafetensorsFile::open(dir + "/model.safetensors");
      EXPECT_EQ(file.find("lm_head.weight") == nullptr, tied);
      const TensorInfo* embedding =
          file.find(family == Family::gpt2 ? "wte.weight" : "model.embed_tokens.weight");
      ASSERT_NE(embedding, nullptr);
      EXPECT_EQ(embedding->shape, (std::vector<std::uint64_t>{257, 32}));
    }
  }
  EXPECT_EQ(pointer(), "step-00000007\n");
}

TEST_F(SnapshotTest, KeepsTheNewestOnesAndTheTokenizer) {
  write_file(run_ / "tokenizer.json", "{\"model\":{}}");
  for (std::int64_t step = 1; step <= 4; ++step) save(step, {2, run_ / "tokenizer.json"});
  EXPECT_EQ(list_snapshots(run_.path()),
            (std::vector<std::string>{"step-00000004", "step-00000003"}));
  EXPECT_EQ(read_file(run_ / "snapshots/step-00000004/tokenizer.json"), "{\"model\":{}}");
  expect_loads(run_ / "snapshots/step-00000003", 3);
  const auto found = find_latest_snapshot(run_.path());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->dir, run_ / "snapshots/step-00000004");
  EXPECT_TRUE(found->passed_over.empty());
}

TEST_F(SnapshotTest, NothingToFindInANewRun) {
  EXPECT_FALSE(find_latest_snapshot(run_.path()).has_value());
}

TEST_F(SnapshotTest, PassesOverDamagedOnesAndNamesThem) {
  for (std::int64_t step = 1; step <= 3; ++step) save(step);
  cut_one_byte(run_ / "snapshots/step-00000003/optimizer.safetensors");
  auto found = find_latest_snapshot(run_.path());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->dir, run_ / "snapshots/step-00000002");
  ASSERT_EQ(found->passed_over.size(), 1U);
  EXPECT_NE(found->passed_over[0].find("optimizer.safetensors"), std::string::npos);
  expect_loads(found->dir, 2);

  // One byte off any file of a snapshot makes it unusable, the manifest included.
  for (const std::string name : {"config.json", "model.safetensors", "optimizer.safetensors",
                                 "state.json", "manifest.json"}) {
    const std::string dir = save(2);
    cut_one_byte(dir + "/" + name);
    found = find_latest_snapshot(run_.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->dir, run_ / "snapshots/step-00000001") << name;
    EXPECT_EQ(found->passed_over.size(), 2U);
    EXPECT_NE(refusal(dir, config_).find(name), std::string::npos);
  }
  // When none is left, all are named.
  cut_one_byte(run_ / "snapshots/step-00000001/state.json");
  try {
    find_latest_snapshot(run_.path());
    FAIL();
  } catch (const Error& error) {
    for (const std::string name : {"step-00000001", "step-00000002", "step-00000003"}) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

TEST_F(SnapshotTest, SeesAChangedBit) {
  const std::string dir = save(1);
  const std::string path = dir + "/model.safetensors";
  std::string content = read_file(path);
  content[content.size() - 5] = static_cast<char>(content[content.size() - 5] ^ 1);
  write_file(path, content);
  EXPECT_NE(refusal(dir, config_).find("the content of model.safetensors has changed"),
            std::string::npos);
  // A manifest edited to hide it gives itself away.
  std::string manifest = read_file(dir + "/manifest.json");
  manifest.replace(manifest.find("\"step\": 1"), 9, "\"step\": 2");
  write_file(dir + "/manifest.json", manifest);
  EXPECT_NE(refusal(dir, config_).find("its own hash does not match"), std::string::npos);
}

TEST_F(SnapshotTest, RefusesAnotherModelByTheFirstDifference) {
  const std::string dir = save(1);
  ModelConfig other = config_;
  other.ffn = 96;
  EXPECT_NE(refusal(dir, other, ExitCode::usage).find("ffn is 64 and 96"), std::string::npos);
  other = config_;
  other.rope.theta = 5e5;
  EXPECT_NE(refusal(dir, other, ExitCode::usage).find("rope_theta is 1000000 and 500000"),
            std::string::npos);
  EXPECT_NE(refusal(dir, tiny_config(Family::llama, true), ExitCode::usage)
                .find("family is qwen2 and llama"),
            std::string::npos);
}

TEST_F(SnapshotTest, ReplacesASnapshotOfTheSameStep) {
  const std::string dir = save(5);
  cut_one_byte(dir + "/model.safetensors");
  save(5);
  expect_loads(dir, 5);
  EXPECT_TRUE(list_unfinished(run_.path()).empty());
}

TEST_F(SnapshotTest, CleansUpAfterDeadProcessesOnly) {
  save(1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string dead = "step-00000002.tmp-" + std::to_string(child);
  const std::string alive = "step-00000002.tmp-" + std::to_string(::getppid());
  std::filesystem::create_directories(run_ / ("snapshots/" + dead));
  std::filesystem::create_directories(run_ / ("snapshots/" + alive));
  const auto found = find_latest_snapshot(run_.path());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->passed_over.size(), 2U);
  EXPECT_EQ(clean_unfinished_snapshots(run_.path()), std::vector<std::string>{dead});
  EXPECT_EQ(list_unfinished(run_.path()), std::vector<std::string>{alive});
}

// The disk fills up during the second save: a limit on file sizes stops it half way.
TEST_F(SnapshotTest, FullDiskLeavesTheFirstSnapshotAndThePointer) {
  const std::string first = save(1);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = static_cast<rlim_t>(table_.parameter_count()) * 2;  // half of the weights
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    save(2);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(std::to_string(snapshot_bytes(table_)) + " bytes"), std::string::npos);
  EXPECT_NE(message.find("are free"), std::string::npos) << message;
  EXPECT_EQ(pointer(), "step-00000001\n");
  EXPECT_TRUE(list_unfinished(run_.path()).empty());
  EXPECT_EQ(list_snapshots(run_.path()), std::vector<std::string>{"step-00000001"});
  expect_loads(first, 1);
}

TEST_F(SnapshotTest, RefusesBeforeWritingWhenItCannotFit) {
  config_.vocab = 1'000'000'000'000;  // petabytes; nothing is allocated for the refusal
  table_ = make_parameter_table(config_);
  EXPECT_FALSE(snapshot_space_warning(run_.path(), table_).empty());
  try {
    save(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
    EXPECT_NE(std::string(error.what()).find(std::to_string(snapshot_bytes(table_))),
              std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(run_ / "snapshots"));
}

// What lies beside weights and moments needs room too.
TEST_F(SnapshotTest, AttachmentsCountAsWell) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;
  EXPECT_NE(snapshot_space_warning(run_.path(), table_, kHuge)
                .find(std::to_string(snapshot_bytes(table_) + kHuge)),
            std::string::npos);
  EXPECT_NO_THROW(require_snapshot_space(run_.path(), table_, 1000));
  try {
    require_snapshot_space(run_.path(), table_, kHuge);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
  }
}

// The estimate covers what is really written.
TEST_F(SnapshotTest, EstimateIsAnUpperBound) {
  std::uint64_t written = 0;
  for (const auto& entry : std::filesystem::directory_iterator(save(1))) {
    written += entry.file_size();
  }
  EXPECT_LE(written, snapshot_bytes(table_));
  EXPECT_TRUE(snapshot_space_warning(run_.path(), table_).empty());
}

// Killed at twenty different moments while saving step after step.
TEST_F(SnapshotTest, SurvivesBeingKilledAtAnyMoment) {
  save(1);
  std::int64_t newest = 1;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::int64_t step = newest + 1;; ++step) save(step, {3, ""});
    }
    ::usleep(static_cast<useconds_t>(1500 + 49'973 * round % 190'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);

    const auto found = find_latest_snapshot(run_.path());
    ASSERT_TRUE(found.has_value());
    for (const std::string& reason : found->passed_over) {
      EXPECT_NE(reason.find("a save that did not finish"), std::string::npos) << reason;
    }
    newest = step_of_snapshot(std::filesystem::path(found->dir).filename().string());
    expect_loads(found->dir, newest);
    const std::string named = pointer();
    ASSERT_TRUE(named.ends_with('\n'));
    expect_loads(run_ / ("snapshots/" + named.substr(0, named.size() - 1)),
                 step_of_snapshot(named.substr(0, named.size() - 1)));
  }
  save(newest + 1, {3, ""});
  EXPECT_TRUE(list_unfinished(run_.path()).empty());
  EXPECT_LE(list_snapshots(run_.path()).size(), 3U);
}

}  // namespace
}  // namespace belay
