#include "belay/snapshot/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/hf_config.h"
#include "belay/snapshot/llmc.h"
#include "belay/snapshot/manifest.h"
#include "belay/snapshot/snapshot.h"
#include "belay/snapshot/test_model.h"

namespace belay {
namespace {

using testing_support::filled;
using testing_support::Received;
using testing_support::TemporaryDirectory;
using testing_support::tiny_config;
using testing_support::weight_value;

constexpr std::int32_t kVocab = 257, kPadded = 384, kLayers = 2, kWidth = 32, kRows = 16;

// llm.c's order: each kind of parameter with all layers back to back, padding rows zero.
std::string llmc_file(std::int32_t version, const ParameterTable& table) {
  std::vector<std::int32_t> header(256, 0);
  const std::vector<std::int32_t> first = {20240326, version, kRows,  kVocab,
                                           kLayers,  4,       kWidth, kPadded};
  std::copy(first.begin(), first.end(), header.begin());
  std::vector<float> body;
  const auto append = [&](const std::string& name) {
    const int index = table.find(name);
    ASSERT_GE(index, 0) << name;
    for (std::size_t i = 0; i < static_cast<std::size_t>(table[index].elements()); ++i) {
      body.push_back(weight_value(index, i, 5));
    }
  };
  append("embedding.weight");
  body.resize(std::size_t{kPadded} * std::size_t{kWidth}, 0.0F);
  append("positions.weight");
  for (const std::string kind :
       {"norm1.weight", "norm1.bias", "attention.qkv.weight", "attention.qkv.bias",
        "attention.out.weight", "attention.out.bias", "norm2.weight", "norm2.bias", "ffn.up.weight",
        "ffn.up.bias", "ffn.down.weight", "ffn.down.bias"}) {
    for (int layer = 0; layer < kLayers; ++layer) {
      append("layers." + std::to_string(layer) + "." + kind);
    }
  }
  append("final_norm.weight");
  append("final_norm.bias");
  const DType dtype = version == 3 ? DType::f32 : DType::bf16;
  std::string file(1024 + body.size() * size_of(dtype), '\0');
  std::memcpy(file.data(), header.data(), 1024);
  EXPECT_TRUE(encode_elements(
      dtype, body, std::as_writable_bytes(std::span(file.data(), file.size())).subspan(1024)));
  return file;
}

ModelConfig llmc_config() {
  ModelConfig config = tiny_config(Family::gpt2, true);
  config.ffn = 4 * kWidth;
  config.seq_len = kRows;
  return config;
}

TEST(LlmcTest, BothVersionsWithoutThePadding) {
  const TemporaryDirectory dir;
  const ParameterTable table = make_parameter_table(llmc_config());
  for (const std::int32_t version : {3, 5}) {
    const std::string path = dir / ("model_" + std::to_string(version) + ".bin");
    write_file(path, llmc_file(version, table));
    const std::string out = dir / ("imported-" + std::to_string(version));
    const Converted result = import_model(path, out);
    EXPECT_EQ(result.parameters, table.parameter_count());
    EXPECT_EQ(first_difference(load_hf_config(out), llmc_config()), "");
    Received received(table);
    import_weights(out, table, received.sink());
    received.expect_filled(table, 5);
    EXPECT_EQ(verify_directory(out).kind, "weights");
    // llm.c's [out, in] weights become the Hub's [in, out].
    const SafetensorsFile file = SafetensorsFile::open(out + "/model.safetensors");
    EXPECT_EQ(file.find("h.0.attn.c_attn.weight")->shape, (std::vector<std::uint64_t>{32, 96}));
    EXPECT_EQ(file.find("wte.weight")->shape, (std::vector<std::uint64_t>{257, 32}));
  }
}

TEST(LlmcTest, RefusesBadHeaders) {
  const std::string good = llmc_file(5, make_parameter_table(llmc_config()));
  const auto refusal = [&](std::size_t word, std::int32_t value, std::size_t cut = 0) {
    std::string file = good.substr(0, good.size() - cut);
    std::memcpy(file.data() + 4 * word, &value, 4);
    try {
      parse_llmc(std::as_bytes(std::span(file.data(), file.size())), "model.bin");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(0, 20240326), "accepted");
  EXPECT_NE(refusal(0, 7).find("magic number is 7"), std::string::npos);
  EXPECT_NE(refusal(1, 4).find("version 4"), std::string::npos);
  EXPECT_NE(refusal(3, 0).find("vocab_size is 0"), std::string::npos);
  EXPECT_NE(refusal(3, 400).find("padded_vocab_size 384 is below vocab_size 400"),
            std::string::npos);
  EXPECT_NE(refusal(4, -1).find("num_layers is -1"), std::string::npos);
  EXPECT_NE(refusal(5, 5).find("hidden 32 is not divisible by model.heads 5"), std::string::npos);
  EXPECT_NE(refusal(6, 1 << 24).find("bytes follow the header"), std::string::npos);
  EXPECT_NE(refusal(1, 3).find("elements of f32"), std::string::npos);
  EXPECT_NE(refusal(0, 20240326, 1).find("bytes follow the header"), std::string::npos);
  EXPECT_THROW(parse_llmc(std::as_bytes(std::span(good.data(), 1000)), "model.bin"), Error);
}

class ConvertTest : public testing::Test {
 protected:
  void save(std::int64_t step) {
    write_file(dir_ / "tokenizer.json", "{}");
    SnapshotState state;
    state.step = step;
    state.dtype = "f32";
    save_snapshot(run_, config_, table_, state,
                  {filled(static_cast<int>(step)), filled(8), filled(9)},
                  {0, dir_ / "tokenizer.json"});
  }
  TemporaryDirectory dir_;
  std::string run_ = dir_ / "run";
  std::string out_ = dir_ / "out";
  ModelConfig config_ = tiny_config(Family::qwen2, true);
  ParameterTable table_ = make_parameter_table(config_);
};

TEST_F(ConvertTest, ExportsTheNewestSnapshotOfARun) {
  save(1);
  save(2);
  const Converted result = export_model(run_, out_, DType::bf16, 30'000);
  EXPECT_GT(result.files, 2U);
  EXPECT_EQ(first_difference(load_hf_config(out_), config_), "");
  Received received(table_);
  import_weights(out_, table_, received.sink());
  received.expect_filled(table_, 2);
  EXPECT_EQ(read_file(out_ + "/tokenizer.json"), "{}");
  for (const std::string name : {"optimizer.safetensors", "state.json", "manifest.json"}) {
    EXPECT_FALSE(std::filesystem::exists(out_ + "/" + name)) << name;
  }
  EXPECT_NE(read_file(out_ + "/config.json").find("\"torch_dtype\": \"bfloat16\""),
            std::string::npos);
  // Exporting the export, back to one f32 file, loses nothing more.
  export_model(out_, dir_ / "again", DType::f32, kMaxShardBytes);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "again/model.safetensors"));
  EXPECT_THROW(export_model(run_, out_, DType::f32, kMaxShardBytes), Error);
}

TEST_F(ConvertTest, DamagedSourceLeavesNothing) {
  save(1);
  const std::string snapshot = run_ + "/snapshots/step-00000001";
  std::filesystem::resize_file(snapshot + "/model.safetensors", 1000);
  EXPECT_THROW(export_model(snapshot, out_, DType::f32, kMaxShardBytes), Error);
  EXPECT_THROW(import_model(snapshot, out_), Error);
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
  }
}

TEST_F(ConvertTest, ImportsAHuggingFaceDirectory) {
  save(3);
  export_model(run_, out_, DType::f16, 20'000);
  const Converted result = import_model(out_, dir_ / "start");
  EXPECT_EQ(result.files, 1U);
  const Manifest manifest = verify_directory(dir_ / "start");
  EXPECT_EQ(manifest.files.size(), 3U);  // weights, config, tokenizer
  Received received(table_);
  import_weights(dir_ / "start", table_, received.sink());
  received.expect_filled(table_, 3);
  // It holds no training state, and says so.
  try {
    load_snapshot(dir_ / "start", config_, table_,
                  {received.sink(), received.sink(), received.sink()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("weights only"), std::string::npos);
  }
}

TEST(ConvertSize, Units) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000U);
  EXPECT_EQ(parse_size("2GiB"), 2ULL << 30);
  EXPECT_EQ(parse_size("1234"), 1234U);
  for (const std::string text : {"", "GB", "5gb", "-1GB", "0GB", "5.5GB", "99999999999999GB"}) {
    EXPECT_THROW(parse_size(text), Error) << text;
  }
}

}  // namespace
}  // namespace belay
