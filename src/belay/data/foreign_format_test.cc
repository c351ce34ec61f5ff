#include "belay/data/foreign_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "belay/base/error.h"

namespace belay::data {
namespace {

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "no error";
}

// The documents [1, 2, 3] and [4, 5] in u16, byte for byte as Megatron-LM writes the index.
const char* const kGolden =
    "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000"
    "000000000600000000000000000000000000000001000000000000000200000000000000";

TEST(MegatronIndex, ReadsTheGoldenBytes) {
  const MegatronIndex index = parse_megatron_index(from_hex(kGolden), 10, "golden.idx");
  EXPECT_EQ(index.type, TokenType::u16);
  EXPECT_EQ(index.documents, (std::vector<std::uint64_t>{0, 3, 5}));
}

TEST(MegatronIndex, WritesTheGoldenBytes) {
  std::vector<std::byte> written;
  const std::vector<std::uint64_t> starts = {0, 3, 5};
  write_megatron_index(starts, TokenType::u16, [&](std::span<const std::byte> bytes) {
    written.insert(written.end(), bytes.begin(), bytes.end());
  });
  EXPECT_EQ(written, from_hex(kGolden));
}

TEST(MegatronIndex, ReadsSeveralSequencesPerDocumentAndModes) {
  std::vector<std::byte> bytes = from_hex(kGolden);
  bytes[26] = std::byte{2};  // one document, so two entries
  bytes.erase(bytes.end() - 16, bytes.end() - 8);
  bytes.resize(bytes.size() + 2);  // one mode byte per sequence
  const MegatronIndex index = parse_megatron_index(bytes, 10, "modes.idx");
  EXPECT_EQ(index.documents, (std::vector<std::uint64_t>{0, 5}));
}

TEST(MegatronIndex, RefusesDamageWithTheValue) {
  const std::vector<std::byte> golden = from_hex(kGolden);
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = golden;
    bytes[at] = static_cast<std::byte>(value);
    return message_of([&] { parse_megatron_index(bytes, 10, "bad.idx"); });
  };
  EXPECT_NE(with(0, 'X').find("bad.idx: not a Megatron index"), std::string::npos);
  EXPECT_NE(with(9, 2).find("version 2"), std::string::npos);
  EXPECT_NE(with(17, 6).find("dtype code 6"), std::string::npos);
  EXPECT_NE(with(25, 0xff).find("do not fit"), std::string::npos);  // 2^63 sequences
  EXPECT_NE(with(33, 0x20).find("do not fit"), std::string::npos);  // entries times 8 overflow
  EXPECT_NE(with(37, 0x80).find("sequence 0 has length -"), std::string::npos);
  EXPECT_NE(with(50, 7).find("sequence 1 has length 2 and offset 7"), std::string::npos);
  EXPECT_NE(with(58, 1).find("document entry 0 of 3 is 1"), std::string::npos);
  EXPECT_NE(with(74, 3).find("document entry 2 of 3 is 3"), std::string::npos);
  const std::string cut = message_of([&] { parse_megatron_index(golden, 9, "bad.idx"); });
  EXPECT_NE(cut.find("5 tokens of 2 bytes"), std::string::npos) << cut;
  for (std::size_t size = 0; size < golden.size(); ++size) {
    const std::span<const std::byte> part = std::span(golden).first(size);
    EXPECT_NE(message_of([&] { parse_megatron_index(part, 10, "cut.idx"); }), "no error") << size;
  }
}

std::vector<std::byte> llmc(std::int32_t magic, std::int32_t version, std::int32_t tokens,
                            std::size_t payload) {
  std::vector<std::byte> bytes(kLlmcHeaderBytes + payload);
  const std::int32_t words[] = {magic, version, tokens};
  std::memcpy(bytes.data(), words, sizeof(words));
  return bytes;
}

TEST(Llmc, ReadsBothVersions) {
  std::vector<std::byte> gpt2 = llmc(20240520, 1, 3, 6);
  gpt2[kLlmcHeaderBytes + 2] = std::byte{0x50};
  gpt2[kLlmcHeaderBytes + 3] = std::byte{0xc4};
  const TokenView tokens = parse_llmc(gpt2, "a.bin");
  EXPECT_EQ(tokens.count, 3);
  EXPECT_EQ(tokens.at(1), 50256);
  EXPECT_EQ(parse_llmc(llmc(20240801, 7, 2, 8), "b.bin").type, TokenType::u32);
}

TEST(Llmc, RefusesDamageWithTheValue) {
  const auto refusal = [](std::int32_t magic, std::int32_t version, std::int32_t tokens,
                          std::size_t payload) {
    return message_of([&] { parse_llmc(llmc(magic, version, tokens, payload), "bad.bin"); });
  };
  EXPECT_NE(refusal(1, 1, 0, 0).find("bad.bin: 1 is not the magic"), std::string::npos);
  EXPECT_NE(refusal(20240520, 2, 0, 0).find("version 2, expected 1"), std::string::npos);
  EXPECT_NE(refusal(20240520, 1, 4, 6).find("promises 4 tokens"), std::string::npos);
  EXPECT_NE(refusal(20240520, 1, -1, 6).find("promises -1 tokens"), std::string::npos);
  const std::vector<std::byte> tiny(100);
  EXPECT_NE(message_of([&] { parse_llmc(tiny, "tiny.bin"); }).find("too few"), std::string::npos);
}

}  // namespace
}  // namespace belay::data
