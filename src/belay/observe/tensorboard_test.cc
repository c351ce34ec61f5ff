#include "belay/observe/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "belay/observe/crc32c.h"
#include "belay/observe/sinks.h"

namespace belay {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST(Crc32cTest, PublishedCheckValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
}

TEST(EventRecordTest, BytesAreThoseOfTheFormat) {
  EventRecord record;
  EXPECT_EQ(hex(record.file_version(1.0)),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  record.begin(2.0, 7);
  record.scalar("loss", 2.5F);
  EXPECT_EQ(hex(record.finish()),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f73731500002040c2dfec60");
}

// A reader of its own, from the description of the format.
struct Event {
  std::int64_t step = 0;
  std::string version;
  bool starts = false;
  std::map<std::string, float> scalars;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] bool done() const { return bytes_.empty(); }
  template <class T>
  T fixed() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80U) return value;
    }
  }
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("truncated");
    const std::string_view piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

 private:
  std::string_view bytes_;
};

std::uint32_t checksum(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
  }
  crc = ~crc;
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

std::vector<Event> read_events(std::string_view file) {
  std::vector<Event> events;
  for (Reader reader(file); !reader.done();) {
    const std::string_view length_bytes = reader.take(8);
    EXPECT_EQ(reader.fixed<std::uint32_t>(), checksum(length_bytes));
    std::uint64_t length = 0;
    std::memcpy(&length, length_bytes.data(), 8);
    const std::string_view data = reader.take(length);
    EXPECT_EQ(reader.fixed<std::uint32_t>(), checksum(data));
    Event event;
    for (Reader fields(data); !fields.done();) {
      const std::uint64_t key = fields.varint();
      if (key == (1U << 3 | 1U)) {
        EXPECT_GT(fields.fixed<double>(), 1e9);
      } else if (key == (2U << 3 | 0U)) {
        event.step = static_cast<std::int64_t>(fields.varint());
      } else if (key == (3U << 3 | 2U)) {
        event.version = fields.take(fields.varint());
      } else if (key == (7U << 3 | 2U)) {
        event.starts = fields.take(fields.varint()) == "\x08\x01";
      } else {
        EXPECT_EQ(key, 5U << 3 | 2U);
        for (Reader summary(fields.take(fields.varint())); !summary.done();) {
          EXPECT_EQ(summary.varint(), 1U << 3 | 2U);
          Reader value(summary.take(summary.varint()));
          EXPECT_EQ(value.varint(), 1U << 3 | 2U);
          const std::string tag(value.take(value.varint()));
          EXPECT_EQ(value.varint(), 2U << 3 | 5U);
          event.scalars[tag] = value.fixed<float>();
          EXPECT_TRUE(value.done());
        }
      }
    }
    events.push_back(event);
  }
  return events;
}

TEST(TensorboardSinkTest, AnIndependentReaderReadsBackWhatWasWritten) {
  const std::string directory = ::testing::TempDir() + "belay_tensorboard";
  std::filesystem::remove_all(directory);
  const auto sink = make_tensorboard_sink(directory, 0);
  sink->step({.step = 300, .tokens = 77, .loss = 2.25, .lr = 1e-3, .tokens_per_s = 5e4});
  sink->evaluation({.step = 301, .loss = 3.5, .tokens = 10, .ms = 2});
  sink->close();

  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) path = entry.path();
  EXPECT_NE(path.find("tfevents"), std::string::npos);
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  const std::vector<Event> events = read_events(content.str());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].scalars.at("train/loss"), 2.25F);
  EXPECT_EQ(events[1].scalars.at("train/lr"), 1e-3F);
  EXPECT_EQ(events[1].scalars.at("train/tokens"), 77.0F);
  EXPECT_EQ(events[1].scalars.at("train/tokens_per_s"), 5e4F);
  EXPECT_EQ(events[2].step, 301);
  EXPECT_EQ(events[2].scalars.at("val/loss"), 3.5F);
}

TEST(TensorboardSinkTest, AResumedRunVoidsWhatOlderFilesHoldBehindIt) {
  const std::string directory = ::testing::TempDir() + "belay_tensorboard_resumed";
  std::filesystem::remove_all(directory);
  make_tensorboard_sink(directory, 70)->close();
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) path = entry.path();
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  const std::vector<Event> events = read_events(content.str());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 71);
}

}  // namespace
}  // namespace belay
