#include "belay/snapshot/inspect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/convert.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/test_model.h"
#include "belay/snapshot/verify.h"

namespace belay {
namespace {

using testing_support::filled;
using testing_support::TemporaryDirectory;
using testing_support::tiny_config;

class InspectTest : public testing::Test {
 protected:
  InspectTest() {
    for (const std::int64_t step : {1, 2}) {
      SnapshotState state;
      state.step = step;
      state.tokens = 640;
      state.dtype = "bf16";
      save_snapshot(run_.path(), config_, table_, state, {filled(1), filled(2), filled(3)});
    }
  }
  TemporaryDirectory run_;
  ModelConfig config_ = tiny_config(Family::llama, true);
  ParameterTable table_ = make_parameter_table(config_);
};

TEST_F(InspectTest, ShowsTheNewestSnapshotOfARun) {
  const Inspection found = inspect(run_.path(), true);
  EXPECT_EQ(found.path, run_ / "snapshots/step-00000002");
  EXPECT_EQ(found.kind, "snapshot");
  EXPECT_EQ(found.parameters, table_.parameter_count());
  const std::string text = inspection_text(found);
  for (const std::string part :
       {"llama: 2 layers, hidden 32, heads 4 (kv 2, dim 8), ffn 64, vocab 257, seq_len 32, tied",
        "step        2 (640 tokens, computed in bf16)", "model.layers.1.self_attn.q_proj.weight",
        "m.layers.0.attention.qkv.weight", "F32   [257, 32]  norm "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const nlohmann::json json = nlohmann::json::parse(inspection_json(found));
  EXPECT_EQ(json["state"]["step"], 2);
  EXPECT_EQ(json["config"]["hidden_size"], 32);
  std::size_t tensors = 0;
  for (const auto& file : json["files"]) tensors += file.value("tensors", nlohmann::json()).size();
  EXPECT_EQ(tensors, 9U * 2 + 2 + 2 * static_cast<std::size_t>(table_.size()));
}

TEST_F(InspectTest, SingleFileAndWhatIsNone) {
  const Inspection found = inspect(run_ / "snapshots/step-00000001/model.safetensors", false);
  EXPECT_EQ(found.kind, "safetensors");
  EXPECT_FALSE(found.files[0].tensors[0].norms.has_value());
  write_file(run_ / "text", "hello");
  EXPECT_THROW(inspect(run_ / "text", false), Error);
  EXPECT_THROW(inspect(run_ / "nowhere", false), Error);
}

TEST(InspectNorms, CountsWhatIsNotFinite) {
  std::vector<float> values(40'000, 0.0F);
  values[0] = 3.0F;
  values[30'000] = -4.0F;
  values[39'999] = std::numeric_limits<float>::infinity();
  values[1] = std::nanf("");
  const TensorNorms norms = tensor_norms(DType::f32, std::as_bytes(std::span(values)));
  EXPECT_DOUBLE_EQ(norms.l2, 5.0);
  EXPECT_DOUBLE_EQ(norms.max_abs, 4.0);
  EXPECT_EQ(norms.non_finite, 2U);
}

TEST_F(InspectTest, VerifyNamesTheBadFile) {
  std::vector<Verified> results = verify(run_.path());
  ASSERT_EQ(results.size(), 2U);
  for (const Verified& result : results) {
    EXPECT_TRUE(result.hashed);
    EXPECT_TRUE(result.problems.empty());
  }
  const std::string newest = run_ / "snapshots/step-00000002";
  std::filesystem::resize_file(newest + "/optimizer.safetensors", 100);
  std::filesystem::remove(newest + "/config.json");
  std::filesystem::create_directory(run_ / "snapshots/step-00000003.tmp-1");
  results = verify(run_.path());
  ASSERT_EQ(results.size(), 3U);
  ASSERT_EQ(results[0].problems.size(), 2U);
  EXPECT_NE(results[0].problems[0].find("config.json is missing"), std::string::npos);
  EXPECT_NE(results[0].problems[1].find("optimizer.safetensors has 100 bytes"), std::string::npos);
  EXPECT_TRUE(results[1].problems.empty());
  EXPECT_NE(results[2].problems[0].find("did not finish"), std::string::npos);

  // A snapshot without its manifest is not taken for a plain Hugging Face directory.
  const std::string oldest = run_ / "snapshots/step-00000001";
  std::filesystem::remove(oldest + "/manifest.json");
  EXPECT_NE(verify(oldest)[0].problems.at(0).find("manifest.json"), std::string::npos);
}

TEST_F(InspectTest, VerifyChecksPlainDirectoriesAndFiles) {
  const std::string out = run_ / "exported";
  export_model(run_.path(), out, DType::bf16, 20'000);
  EXPECT_TRUE(verify(out)[0].problems.empty());
  EXPECT_FALSE(verify(out)[0].hashed);
  EXPECT_TRUE(verify(out + "/model-00001-of-00002.safetensors").size() == 1U);
  std::string config = read_file(out + "/config.json");
  config.replace(config.find("\"intermediate_size\": 64"), 23, "\"intermediate_size\": 65");
  write_file(out + "/config.json", config);
  EXPECT_NE(verify(out)[0].problems.at(0).find("has shape [64, 32], the model needs [65, 32]"),
            std::string::npos);
  write_file(run_ / "short.safetensors", "123");
  EXPECT_NE(verify(run_ / "short.safetensors")[0].problems.at(0).find("too few"),
            std::string::npos);
  EXPECT_NE(verify(run_ / "nowhere")[0].problems.at(0).find("cannot open"), std::string::npos);
}

}  // namespace
}  // namespace belay
