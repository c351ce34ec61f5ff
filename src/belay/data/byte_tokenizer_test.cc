#include "belay/data/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "belay/base/error.h"

namespace belay::data {
namespace {

TEST(ByteTokenizer, every_byte_survives) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  std::vector<std::int32_t> ids = {7};
  tokenizer.encode(text, ids, SpecialText::ordinary);
  ASSERT_EQ(ids.size(), 257U);
  EXPECT_EQ(ids[0], 7) << "encode appends";
  EXPECT_EQ(tokenizer.decode(std::span(ids).subspan(1)), text);
}

TEST(ByteTokenizer, saves_and_loads) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "byte_tokenizer_test";
  std::filesystem::create_directories(directory);
  const auto tokenizer = load_tokenizer("bytes");
  tokenizer->save((directory / tokenizer->file_name()).string());
  const auto loaded = load_tokenizer(directory.string());
  EXPECT_EQ(loaded->vocab_size(), 257);
  EXPECT_EQ(loaded->end_of_document(), 256);
  std::filesystem::remove_all(directory);
}

TEST(ByteTokenizer, refuses_ids_out_of_range) {
  const ByteTokenizer tokenizer;
  for (const std::int32_t id : {-1, 257}) {
    EXPECT_THROW((void)tokenizer.token_bytes(id), Error) << id;
  }
}

TEST(LoadTokenizer, names_what_is_missing) {
  try {
    (void)load_tokenizer("/nonexistent/tokenizer.json");
    FAIL() << "must throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/tokenizer.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace belay::data
