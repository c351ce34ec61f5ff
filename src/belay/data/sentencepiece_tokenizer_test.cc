#include "belay/data/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"

namespace belay::data {
namespace {

const std::string kDirectory = std::string(BELAY_SOURCE_DIR) + "/tests/golden/sentencepiece/";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, ids_and_text_as_the_python_package_gives_them) {
  const std::string kind = GetParam();
  const auto tokenizer = load_tokenizer(kDirectory + kind + ".model");
  std::ifstream file(kDirectory + "ids.jsonl");
  int compared = 0;
  for (std::string line; std::getline(file, line); ++compared) {
    const auto entry = nlohmann::json::parse(line);
    const bool bytes = entry.contains("hex");
    const auto raw = entry[bytes ? "hex" : "text"].get<std::string>();
    std::vector<std::int32_t> ids;
    tokenizer->encode(bytes ? from_hex(raw) : raw, ids);
    EXPECT_EQ(ids, entry["ids"][kind].get<std::vector<std::int32_t>>()) << raw;
    EXPECT_EQ(tokenizer->decode(ids), entry["decoded"][kind].get<std::string>()) << raw;
  }
  EXPECT_GT(compared, 20);
}

TEST_P(SentencePiece, special_text_is_text_unless_asked_for) {
  const auto tokenizer = load_tokenizer(kDirectory + GetParam() + ".model");
  const std::string text = "a</s>b";
  EXPECT_EQ(tokenizer->count_special_text(text), 1);
  std::vector<std::int32_t> ids;
  tokenizer->encode(text, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->end_of_document()), 0);
  std::vector<std::int32_t> mapped;
  tokenizer->encode(text, mapped, SpecialText::map);
  EXPECT_EQ(std::count(mapped.begin(), mapped.end(), *tokenizer->end_of_document()), 1);
}

TEST_P(SentencePiece, saves_and_loads) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / (std::string("sentencepiece_") + GetParam());
  std::filesystem::create_directories(directory);
  const auto tokenizer = load_tokenizer(kDirectory + GetParam() + ".model");
  tokenizer->save((directory / tokenizer->file_name()).string());
  const auto loaded = load_tokenizer(directory.string());
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> again;
  tokenizer->encode("The ship 船", ids);
  loaded->encode("The ship 船", again);
  EXPECT_EQ(ids, again);
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePiece, testing::Values("bpe", "unigram"),
                         [](const auto& param) { return std::string(param.param); });

TEST(SentencePieceModel, knows_its_control_ids) {
  const auto bpe = load_tokenizer(kDirectory + "bpe.model");
  EXPECT_EQ(bpe->begin_of_document(), 1);
  EXPECT_EQ(bpe->end_of_document(), 2);
  EXPECT_EQ(bpe->padding(), std::nullopt);
  EXPECT_EQ(load_tokenizer(kDirectory + "unigram.model")->padding(), 3);
}

TEST(SentencePieceModel, refuses_other_files) {
  for (const std::string content : {"not a model", "\x0A\x05", "\xFF\xFF\xFF\xFF"}) {
    try {
      (void)make_sentencepiece_tokenizer(content, "broken.model");
      FAIL() << "must throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find("broken.model"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace belay::data
