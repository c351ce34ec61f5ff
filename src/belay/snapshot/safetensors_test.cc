#include "belay/snapshot/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay {
namespace {

std::string file_of(std::string header, const std::string& data = "") {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);
  }
  return bytes + header + data;
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "some.safetensors");
}

std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() { std::filesystem::create_directories(dir_); }
  ~SafetensorsTest() override { std::filesystem::remove_all(dir_); }
  std::string dir_ = testing::TempDir() + "safetensors-" + std::to_string(::getpid());
  std::string path_ = dir_ + "/file.safetensors";
};

TEST_F(SafetensorsTest, WritesTheBytesOfTheReferenceWriter) {
  // a: BF16 [1, 2] = {1, 2}; b: F32 [2] = {1, 2}. F32 ranks before BF16.
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\x40\x80\x3f\x00\x40", 12);
  const std::string golden = std::string("\x70\0\0\0\0\0\0\0", 8) +
                             R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}} )" +
                             data;
  ASSERT_EQ(golden.size(), 132U);
  std::vector<TensorInfo> tensors = {{"a", StoredType::bf16, {1, 2}, 0, 0},
                                     {"b", StoredType::f32, {2}, 0, 0}};
  EXPECT_EQ(safetensors_file_bytes(tensors, {}), golden.size());
  {
    SafetensorsWriter writer(path_, tensors, {});
    EXPECT_EQ(writer.tensors()[0].name, "b");
    for (const char byte : data) writer.append(std::as_bytes(std::span(&byte, 1)));
    writer.finish();
    EXPECT_EQ(writer.hash(), hash_bytes(std::as_bytes(std::span(golden.data(), golden.size()))));
  }
  EXPECT_EQ(read_file(path_), golden);

  const SafetensorsFile file = SafetensorsFile::open(path_);
  ASSERT_NE(file.find("a"), nullptr);
  EXPECT_EQ(file.find("a")->shape, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(file.bytes(*file.find("a"))[1], std::byte{0x3f});
  EXPECT_EQ(file.find("c"), nullptr);
  file.release(*file.find("a"));
}

TEST_F(SafetensorsTest, MetadataAloneWritesAndReadsBack) {
  SafetensorsWriter writer(path_, {});
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(std::filesystem::file_size(path_) % 8, 0U);
}

TEST_F(SafetensorsTest, NothingStaysWithoutFinish) {
  { const SafetensorsWriter writer(path_, {{"a", StoredType::f32, {2}, 0, 0}}); }
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(SafetensorsTest, WriterRefusesDuplicatesAndOverflow) {
  EXPECT_THROW(SafetensorsWriter(
                   path_, {{"a", StoredType::f32, {2}, 0, 0}, {"a", StoredType::bf16, {2}, 0, 0}}),
               Error);
  EXPECT_THROW(SafetensorsWriter(path_, {{"a", StoredType::f32, {1ULL << 40, 1ULL << 40}, 0, 0}}),
               Error);
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST(SafetensorsParse, AcceptsWhatTheFormatAllows) {
  const std::string zeros(16, '\0');
  EXPECT_EQ(parse(std::string("\x3c\0\0\0\0\0\0\0", 8) +
                  R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})" + zeros)
                .tensors.size(),
            1U);
  // Whitespace on both sides, rank 0, empty tensors, unknown keys with anything inside.
  const SafetensorsHeader header =
      parse(file_of(" \t{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8],"
                    "\"more\":{\"dtype\":[1,{\"a\":null}]},\"x\":-1.5},"
                    "\"e\":{\"shape\":[3,0],\"data_offsets\":[8,8],\"dtype\":\"U8\"}}\n\r ",
                    std::string(8, '\0')));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "s");
  EXPECT_EQ(header.tensors[1].bytes(), 0U);
}

TEST(SafetensorsParse, EveryRefusalHasItsOwnCause) {
  const auto tensor = [](const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
           "],\"data_offsets\":[" + offsets + "]}";
  };
  const std::string eight(8, '\0');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1234", "4 bytes are too few"},
      {std::string(7, '\0') + "\x80" + "{}", "header length 9223372036854775808 is above"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), "header length 16 reaches past"},
      {file_of("{\"\xff\":1}"), "not UTF-8"},
      {file_of("nonsense"), "does not begin with '{'"},
      {file_of(""), "does not begin with '{'"},
      {file_of("{\"a\":}"), "is not JSON: error at its byte 6"},
      {file_of("{} x"), "is not JSON: error at its byte 4"},
      {file_of(std::string("{}\0\0", 4)), "byte 2 is NUL"},
      {file_of("{\"a\":3}"), "entry 'a' of the header is a number"},
      {file_of("{\"__metadata__\":{\"k\":1}}"), "metadata key 'k' is a number"},
      {file_of("{\"__metadata__\":{\"k\":{}}}"), "metadata key 'k' is an object"},
      {file_of("{\"__metadata__\":{\"k\":\"a\",\"k\":\"a\"}}"), "metadata key 'k' appears twice"},
      {file_of("{" + tensor("w", "F32", "2", "0,8") + "," + tensor("w", "F32", "2", "0,8") + "}",
               eight),
       "tensor 'w' appears twice"},
      {file_of("{" + tensor("w", "F33", "2", "0,8") + "}", eight),
       "tensor 'w': unknown dtype 'F33'"},
      {file_of("{" + tensor("w", "F32", "2", "0,8,9") + "}", eight),
       "tensor 'w': data_offsets must hold two numbers"},
      {file_of("{" + tensor("w", "F32", "2", "0") + "}", eight),
       "tensor 'w': data_offsets must hold two numbers"},
      {file_of("{" + tensor("w", "F32", "-2", "0,8") + "}", eight),
       "tensor 'w': 'shape' holds a negative number"},
      {file_of("{" + tensor("w", "F32", "2.0", "0,8") + "}", eight),
       "tensor 'w': 'shape' holds a number that is not a 64-bit integer"},
      {file_of("{" + tensor("w", "F32", "18446744073709551616", "0,8") + "}", eight),
       "tensor 'w': 'shape' holds a number that is not a 64-bit integer"},
      {file_of("{" + tensor("w", "F32", "[2]", "0,8") + "}", eight),
       "tensor 'w': 'shape' holds a list"},
      {file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", eight),
       "tensor 'w': 'data_offsets' is missing"},
      {file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2]}}", eight),
       "tensor 'w': key 'shape' appears twice"},
      {file_of("{" + tensor("v", "F32", "1", "0,4") + "," + tensor("w", "F32", "1", "2,6") + "}",
               eight),
       "tensor 'w': its data begins at 2, but the tensors before it end at 4: they overlap"},
      {file_of("{" + tensor("w", "F32", "1", "4,8") + "}", eight),
       "tensor 'w': its data begins at 4, but the tensors before it end at 0: there is a hole"},
      {file_of("{" + tensor("w", "F32", "1", "8,4") + "}", eight),
       "tensor 'w': its data ends at 4, before it begins at 8"},
      {file_of("{" + tensor("w", "F32", "3", "0,8") + "}", eight),
       "tensor 'w': 8 bytes of data, but shape [3] of F32 needs 12"},
      {file_of("{" + tensor("w", "F32", "4294967296,4294967296", "0,8") + "}", eight),
       "tensor 'w': the size of shape [4294967296, 4294967296] overflows"},
      {file_of("{" + tensor("w", "F4", "3", "0,1") + "}", std::string(1, '\0')),
       "tensor 'w': shape [3] of F4 is 12 bits"},
      {file_of("{" + tensor("w", "F32", "2", "0,8") + "}", eight + "x"),
       "1 bytes follow the last tensor"},
      {file_of("{" + tensor("w", "F32", "2", "0,8") + "}", "1234567"),
       "tensor 'w': its data ends at 8, but the file holds only 7 bytes"},
      {file_of("{\"__metadata__\":{\"format\":\"pt\"}}", "x"), "1 bytes follow the last tensor"},
  };
  for (const auto& [file, cause] : cases) {
    const std::string message = refusal(file);
    EXPECT_NE(message.find(cause), std::string::npos) << message << "\nexpected: " << cause;
  }
}

TEST(SafetensorsParse, DeepNestingIsNoProblem) {
  std::string header = "{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":";
  header += std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}}";
  EXPECT_EQ(parse(file_of(header)).tensors.size(), 1U);
}

}  // namespace
}  // namespace belay
