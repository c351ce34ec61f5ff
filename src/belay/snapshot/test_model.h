#pragma once
// Small models with recognisable weights, for the tests of this room.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "belay/model/parameter_table.h"
#include "belay/snapshot/snapshot.h"

namespace belay::testing_support {

// A directory of its own for each test, removed afterwards.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = testing::TempDir() + "belay-snapshot-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline ModelConfig tiny_config(Family family, bool tied) {
  ModelConfig config = family_defaults(family);
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = family == Family::gpt2 ? 4 : 2;
  config.ffn = 64;
  config.vocab = 257;  // odd, so that any padding would show
  config.seq_len = 32;
  config.tie_embeddings = tied;
  finish_config(config);
  return config;
}

// Element `i` of parameter `index`: whole numbers of at most 8 bits times a power of two, so that
// every weight type holds them exactly.
inline float weight_value(int index, std::size_t i, int salt) {
  const auto mixed = static_cast<std::uint64_t>(index + 1) * 2654435761U + i * 40503U +
                     static_cast<std::uint64_t>(salt) * 7919U;
  return static_cast<float>(static_cast<int>(mixed % 255) - 127) * 0x1p-9F;
}

inline ParameterReader filled(int salt) {
  return [salt](int index, std::span<float> dst) {
    for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = weight_value(index, i, salt);
  };
}

// Collects what a sink is given.
struct Received {
  std::vector<std::vector<float>> values;

  explicit Received(const ParameterTable& table) : values(static_cast<std::size_t>(table.size())) {}
  ParameterSink sink() {
    return [this](int index, std::span<const float> src) {
      values[static_cast<std::size_t>(index)].assign(src.begin(), src.end());
    };
  }
  [[nodiscard]] bool untouched() const {
    for (const auto& one : values) {
      if (!one.empty()) return false;
    }
    return true;
  }
  // Bit for bit what filled(salt) gives.
  void expect_filled(const ParameterTable& table, int salt) const {
    for (int index = 0; index < table.size(); ++index) {
      const auto& one = values[static_cast<std::size_t>(index)];
      ASSERT_EQ(one.size(), static_cast<std::size_t>(table[index].elements()));
      for (std::size_t i = 0; i < one.size(); ++i) {
        ASSERT_EQ(one[i], weight_value(index, i, salt)) << table[index].name << " [" << i << "]";
      }
    }
  }
};

}  // namespace belay::testing_support
