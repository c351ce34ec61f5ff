#include "belay/snapshot/hf_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/test_model.h"

namespace belay {
namespace {

using testing_support::filled;
using testing_support::Received;
using testing_support::TemporaryDirectory;
using testing_support::tiny_config;
using testing_support::weight_value;

// The whole message of the refusal; the sink must not have seen anything.
std::string refusal(const std::string& path, const ParameterTable& table) {
  Received received(table);
  try {
    import_weights(path, table, received.sink());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_TRUE(received.untouched());
    return error.what();
  }
  return "accepted";
}

// A checkpoint made by hand, tensor by tensor, to be changed before it is written.
struct HandMade {
  struct Tensor {
    TensorInfo info;
    std::string data;
  };
  std::map<std::string, Tensor> tensors;

  static HandMade read(const std::string& path) {
    HandMade result;
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const TensorInfo& info : file.tensors()) {
      const auto bytes = file.bytes(info);
      result.tensors[info.name] = {
          info, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    }
    return result;
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    node.key() = to;
    node.mapped().info.name = to;
    tensors.insert(std::move(node));
  }
  void write(const std::string& path) const {
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back(tensor.info);
    SafetensorsWriter writer(path, infos);
    for (const TensorInfo& info : writer.tensors()) {
      const std::string& data = tensors.at(info.name).data;
      writer.append(std::as_bytes(std::span(data.data(), data.size())));
    }
    writer.finish();
  }
};

TEST(HfWeightsTest, EveryFamilyAndTypeComesBackBitForBit) {
  const TemporaryDirectory dir;
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2}) {
    for (const bool tied : {true, false}) {
      const ParameterTable table = make_parameter_table(tiny_config(family, tied));
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const auto files = export_weights(dir.path(), table, filled(3), dtype);
        ASSERT_EQ(files.size(), 1U);
        EXPECT_EQ(files[0].bytes, std::filesystem::file_size(dir / "model.safetensors"));
        Received received(table);
        import_weights(dir.path(), table, received.sink());
        received.expect_filled(table, 3);
      }
    }
  }
}

// Where single elements lie in the file, written down from the formats rather than from our code.
TEST(HfWeightsTest, LayoutIsThatOfTheFamilies) {
  const TemporaryDirectory dir;
  const auto element = [&](const std::string& name, std::size_t i) {
    const SafetensorsFile file = SafetensorsFile::open(dir / "model.safetensors");
    const TensorInfo* info = file.find(name);
    EXPECT_NE(info, nullptr) << name;
    float value = 0;
    std::memcpy(&value, file.bytes(*info).data() + i * 4, 4);
    return value;
  };
  const ParameterTable gpt2 = make_parameter_table(tiny_config(Family::gpt2, true));
  export_weights(dir.path(), gpt2, filled(0), DType::f32);
  // Conv1D [in 32, out 96]: input 5, output 70 is row 70, column 5 of our [96, 32].
  const int qkv = gpt2.find("layers.1.attention.qkv.weight");
  EXPECT_EQ(element("h.1.attn.c_attn.weight", 5 * 96 + 70), weight_value(qkv, 70 * 32 + 5, 0));
  // Embeddings are not transposed.
  EXPECT_EQ(element("wte.weight", 40 * 32 + 1), weight_value(0, 40 * 32 + 1, 0));

  const ParameterTable qwen = make_parameter_table(tiny_config(Family::qwen2, true));
  export_weights(dir.path(), qwen, filled(0), DType::f32);
  // heads 4, kv heads 2, head size 8: rows of our qkv are q 0..31, k 32..47, v 48..63.
  const int weight = qwen.find("layers.0.attention.qkv.weight");
  const int bias = qwen.find("layers.0.attention.qkv.bias");
  EXPECT_EQ(element("model.layers.0.self_attn.k_proj.weight", 3 * 32 + 9),
            weight_value(weight, (32 + 3) * 32 + 9, 0));
  EXPECT_EQ(element("model.layers.0.self_attn.v_proj.bias", 15), weight_value(bias, 48 + 15, 0));
  // gate comes before up.
  const int up = qwen.find("layers.0.ffn.up.weight");
  EXPECT_EQ(element("model.layers.0.mlp.gate_proj.weight", 7), weight_value(up, 7, 0));
  EXPECT_EQ(element("model.layers.0.mlp.up_proj.weight", 7), weight_value(up, 64 * 32 + 7, 0));
}

TEST(HfWeightsTest, ShardsWithAnIndex) {
  const TemporaryDirectory dir;
  const ParameterTable table = make_parameter_table(tiny_config(Family::llama, false));
  const auto files = export_weights(dir.path(), table, filled(1), DType::bf16, 20'000);
  ASSERT_GE(files.size(), 4U);
  EXPECT_FALSE(std::filesystem::exists(dir / "model.safetensors"));
  const std::size_t shards = files.size() - 1;
  EXPECT_EQ(files[0].name, fmt::format("model-00001-of-{:05}.safetensors", shards));
  const std::string text = read_file(dir / "model.safetensors.index.json");
  EXPECT_TRUE(text.ends_with("}\n"));
  const nlohmann::json index = nlohmann::json::parse(text);
  EXPECT_EQ(index["metadata"]["total_size"], 2 * table.parameter_count());
  EXPECT_EQ(index["weight_map"].size(), 9U * 2 + 3);
  for (std::size_t i = 0; i < shards; ++i) {
    // A shard above the limit holds one tensor only.
    const SafetensorsFile shard = SafetensorsFile::open(dir / files[i].name);
    std::uint64_t bytes = 0;
    for (const TensorInfo& info : shard.tensors()) bytes += info.bytes();
    EXPECT_TRUE(bytes <= 20'000 || shard.tensors().size() == 1);
  }
  Received received(table);
  import_weights(dir.path(), table, received.sink());
  received.expect_filled(table, 1);

  // One message names all missing shards.
  std::filesystem::remove(dir / files[0].name);
  std::filesystem::remove(dir / files[2].name);
  const std::string message = refusal(dir.path(), table);
  EXPECT_NE(message.find("shard " + files[0].name + " is missing"), std::string::npos) << message;
  EXPECT_NE(message.find("shard " + files[2].name + " is missing"), std::string::npos);
  EXPECT_EQ(message.find("shard " + files[1].name), std::string::npos);
}

TEST(HfWeightsTest, IndexThatContradictsItsShards) {
  const TemporaryDirectory dir;
  const ParameterTable table = make_parameter_table(tiny_config(Family::llama, true));
  export_weights(dir.path(), table, filled(1), DType::f32, 40'000);
  const std::string path = dir / "model.safetensors.index.json";
  const nlohmann::json index = nlohmann::json::parse(read_file(path));
  const std::string name = "model.layers.1.mlp.down_proj.weight";

  nlohmann::json changed = index;
  changed["weight_map"].erase(name);
  write_file(path, changed.dump());
  EXPECT_NE(refusal(dir.path(), table).find("tensor " + name + " is in model-"), std::string::npos);

  changed = index;
  changed["weight_map"][name] = index["weight_map"]["model.embed_tokens.weight"];
  write_file(path, changed.dump());
  EXPECT_NE(refusal(dir.path(), table).find("where the index places it"), std::string::npos);

  changed = index;
  changed["weight_map"][name] = "../secret.safetensors";
  write_file(path, changed.dump());
  EXPECT_NE(refusal(dir.path(), table).find("not a file name of this directory"),
            std::string::npos);

  write_file(path, "[]");
  EXPECT_NE(refusal(dir.path(), table).find("no object 'weight_map'"), std::string::npos);
}

class HandMadeTest : public testing::Test {
 protected:
  HandMade start(Family family, bool tied) {
    table_ = make_parameter_table(tiny_config(family, tied));
    export_weights(dir_.path(), table_, filled(2), DType::f32);
    return HandMade::read(path_);
  }
  void expect_imports() {
    Received received(table_);
    import_weights(dir_.path(), table_, received.sink());
    received.expect_filled(table_, 2);
  }

  TemporaryDirectory dir_;
  std::string path_ = dir_ / "model.safetensors";
  ParameterTable table_;
};

TEST_F(HandMadeTest, NamesMissingUnknownAndMisshapenTogether) {
  HandMade file = start(Family::llama, true);
  file.tensors.erase("model.norm.weight");
  file.tensors.erase("model.layers.0.mlp.up_proj.weight");
  file.rename("model.layers.1.input_layernorm.weight", "model.layers.1.strange.weight");
  file.tensors["model.layers.0.mlp.down_proj.weight"].info.shape = {64, 32};
  file.tensors["model.layers.1.mlp.down_proj.weight"].info.dtype = StoredType::i32;
  file.write(path_);
  const std::string message = refusal(dir_.path(), table_);
  for (const std::string part :
       {"tensor model.norm.weight is missing",
        "tensor model.layers.0.mlp.up_proj.weight is missing",
        "tensor model.layers.1.strange.weight is unknown",
        "tensor model.layers.0.mlp.down_proj.weight has shape [64, 32], the model needs [32, 64]",
        "tensor model.layers.1.mlp.down_proj.weight is I32"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(HandMadeTest, UnknownTensorsOnlyWhenAllowed) {
  HandMade file = start(Family::llama, true);
  file.tensors["adapter.weight"] = {{"adapter.weight", StoredType::f32, {1}, 0, 0}, "1234"};
  file.write(path_);
  EXPECT_NE(refusal(dir_.path(), table_).find("adapter.weight is unknown"), std::string::npos);
  Received received(table_);
  import_weights(dir_.path(), table_, received.sink(), {.allow_unknown = true});
  received.expect_filled(table_, 2);
}

TEST_F(HandMadeTest, Gpt2PrefixAndMaskBuffers) {
  HandMade file = start(Family::gpt2, true);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.push_back(name);
  for (const std::string& name : names) file.rename(name, "transformer." + name);
  const std::string mask(32 * 32, '\1');
  for (const std::string name : {"transformer.h.0.attn.bias", "h.11.attn.bias"}) {
    file.tensors[name] = {{name, StoredType::u8, {1, 1, 32, 32}, 0, 0}, mask};
  }
  file.tensors["h.0.attn.masked_bias"] = {{"h.0.attn.masked_bias", StoredType::f32, {}, 0, 0},
                                          "1234"};
  file.write(path_);
  expect_imports();
}

TEST_F(HandMadeTest, TiedHeadMustEqualTheEmbedding) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    HandMade file = start(family, true);
    HandMade::Tensor head =
        file.tensors[family == Family::gpt2 ? "wte.weight" : "model.embed_tokens.weight"];
    head.info.name = "lm_head.weight";
    file.tensors["lm_head.weight"] = head;
    file.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        {"model.layers.0.self_attn.rotary_emb.inv_freq", StoredType::f32, {1}, 0, 0}, "1234"};
    file.write(path_);
    expect_imports();
    file.tensors["lm_head.weight"].data[0] ^= 1;
    file.write(path_);
    EXPECT_NE(refusal(dir_.path(), table_).find("lm_head.weight differs from"), std::string::npos);
  }
}

TEST(HfWeightsTest, ValueTooLargeForHalfPrecision) {
  const TemporaryDirectory dir;
  const ParameterTable table = make_parameter_table(tiny_config(Family::llama, true));
  const ParameterReader large = [](int, std::span<float> dst) {
    for (float& value : dst) value = 70000.0F;
  };
  try {
    export_weights(dir.path(), table, large, DType::f16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too large for f16"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(export_weights(dir.path(), table, large, DType::bf16).size(), 1U);
}

TEST(HfWeightsTest, NoWeightsAtAll) {
  const TemporaryDirectory dir;
  const ParameterTable table = make_parameter_table(tiny_config(Family::llama, true));
  EXPECT_NE(refusal(dir.path(), table).find("neither model.safetensors nor"), std::string::npos);
  write_file(dir / "pytorch_model.bin", "x");
  EXPECT_NE(refusal(dir.path(), table).find("convert it to safetensors"), std::string::npos);
  EXPECT_NE(refusal(dir / "nowhere", table).find("no such file or directory"), std::string::npos);
}

}  // namespace
}  // namespace belay
