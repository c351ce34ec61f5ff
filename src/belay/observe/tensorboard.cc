#include "belay/observe/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <filesystem>
#include <string>

#include "belay/base/error.h"
#include "belay/observe/append_file.h"
#include "belay/observe/crc32c.h"
#include "belay/observe/fields.h"
#include "belay/observe/sinks.h"

namespace belay {
namespace {

// Protocol-buffer wire types, in the low three bits of a key.
enum WireType : std::uint8_t { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

template <class Buffer, class Unsigned>
void append_little_endian(Buffer& buffer, Unsigned value) {
  char bytes[sizeof(value)];
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xFFU);
    value = static_cast<Unsigned>(value >> 8);
  }
  buffer.append(std::string_view(bytes, sizeof(bytes)));
}

template <class Buffer>
void append_varint(Buffer& buffer, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7) {
    const char byte = static_cast<char>((value & 0x7FU) | 0x80U);
    buffer.append(std::string_view(&byte, 1));
  }
  const char byte = static_cast<char>(value);
  buffer.append(std::string_view(&byte, 1));
}

template <class Buffer>
void append_key(Buffer& buffer, unsigned field, WireType type) {
  append_varint(buffer, (field << 3) | type);
}

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80U; value >>= 7) ++size;
  return size;
}

double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string_view EventRecord::file_version(double wall_time) {
  constexpr std::string_view kVersion = "brain.Event:2";
  event_.clear();
  append_key(event_, 1, fixed64);
  append_little_endian(event_, std::bit_cast<std::uint64_t>(wall_time));
  append_key(event_, 3, length_delimited);
  append_varint(event_, kVersion.size());
  event_.append(kVersion);
  return framed();
}

std::string_view EventRecord::restart(double wall_time, std::int64_t step) {
  constexpr std::string_view kStart = "\x08\x01";  // SessionLog.status = START
  event_.clear();
  append_key(event_, 1, fixed64);
  append_little_endian(event_, std::bit_cast<std::uint64_t>(wall_time));
  append_key(event_, 2, varint);
  append_varint(event_, static_cast<std::uint64_t>(step));
  append_key(event_, 7, length_delimited);
  append_varint(event_, kStart.size());
  event_.append(kStart);
  return framed();
}

void EventRecord::begin(double wall_time, std::int64_t step) {
  event_.clear();
  summary_.clear();
  append_key(event_, 1, fixed64);
  append_little_endian(event_, std::bit_cast<std::uint64_t>(wall_time));
  append_key(event_, 2, varint);
  append_varint(event_, static_cast<std::uint64_t>(step));
}

void EventRecord::scalar(std::string_view tag, float value) {
  const std::size_t size = 1 + varint_size(tag.size()) + tag.size() + 1 + sizeof(float);
  append_key(summary_, 1, length_delimited);
  append_varint(summary_, size);
  append_key(summary_, 1, length_delimited);
  append_varint(summary_, tag.size());
  summary_.append(tag);
  append_key(summary_, 2, fixed32);
  append_little_endian(summary_, std::bit_cast<std::uint32_t>(value));
}

std::string_view EventRecord::finish() {
  append_key(event_, 5, length_delimited);
  append_varint(event_, summary_.size());
  event_.append(summary_.view());
  return framed();
}

std::string_view EventRecord::framed() {
  frame_.clear();
  append_little_endian(frame_, static_cast<std::uint64_t>(event_.size()));
  append_little_endian(frame_, masked_crc32c(frame_.view()));
  frame_.append(event_.view());
  append_little_endian(frame_, masked_crc32c(event_.view()));
  return frame_.view();
}

namespace {

class TensorboardSink final : public MetricSink {
 public:
  TensorboardSink(const std::string& path, std::int64_t resumed_step) : file_(path) {
    file_.append(record_.file_version(wall_time_now()));
    if (resumed_step > 0) file_.append(record_.restart(wall_time_now(), resumed_step + 1));
  }

  void step(const StepMetrics& metrics) override {
    record_.begin(wall_time_now(), metrics.step);
    for (const IntegerField& field : kIntegerFields) {
      if (field.name != "step")
        scalar("train/", field.name, static_cast<double>(metrics.*field.member));
    }
    for (const RealField& field : kRealFields) scalar("train/", field.name, metrics.*field.member);
    file_.append(record_.finish());
  }
  void evaluation(const EvaluationMetrics& metrics) override {
    record_.begin(wall_time_now(), metrics.step);
    scalar("val/", "loss", metrics.loss);
    scalar("val/", "ms", metrics.ms);
    file_.append(record_.finish());
  }
  void snapshot(const SnapshotMetrics& metrics) override {
    record_.begin(wall_time_now(), metrics.step);
    scalar("snapshot/", "ms", metrics.ms);
    file_.append(record_.finish());
  }

 private:
  void scalar(std::string_view group, std::string_view name, double value) {
    tag_.clear();
    tag_.append(group);
    tag_.append(name);
    record_.scalar(tag_.view(), static_cast<float>(value));
  }

  AppendFile file_;
  EventRecord record_;
  LineBuffer<64> tag_;
};

}  // namespace

std::unique_ptr<MetricSink> make_tensorboard_sink(const std::string& directory,
                                                  std::int64_t resumed_step) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(ExitCode::data, "cannot create {}: {}", directory, error.message());
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return std::make_unique<TensorboardSink>(
      fmt::format("{}/events.out.tfevents.{:010d}.{}.{}", directory,
                  static_cast<std::int64_t>(wall_time_now()), static_cast<const char*>(host),
                  getpid()),
      resumed_step);
}

}  // namespace belay
