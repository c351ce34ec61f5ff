#include "belay/base/log_repeats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "belay/base/file.h"
#include "belay/base/log.h"

namespace belay::log {
namespace {

namespace fs = std::filesystem;

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(LogRepeats, AKindIsShownThreeTimesAndThenCounted) {
  Repeats repeats;
  std::size_t lines = 0;
  std::string last;
  for (int step = 1; step <= 1003; ++step) {
    const auto text = repeats.shown(fmt::format("step {}: scale {}", step, 1000 + step));
    if (!text) continue;
    ++lines;
    last = *text;
  }
  EXPECT_EQ(lines, 3U + 10U);
  EXPECT_EQ(last, "step 1003: scale 2003 (1003 like it so far)");
  EXPECT_EQ(repeats.shown("step 4: something else"), "step 4: something else");
  for (int rank = 0; rank < 10; ++rank) {
    const std::string late = fmt::format("step 5: rank {} is late", rank);
    EXPECT_EQ(repeats.shown(late), late) << "ranks are told apart";
  }
}

TEST(LogRepeats, TheNumberOfKindsIsBounded) {
  Repeats repeats;
  std::string name;
  for (std::size_t kind = 0; kind < Repeats::kMostKinds; ++kind) {
    name += 'a';
    repeats.shown(name);
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(repeats.shown("one more"), "one more");
}

// Warnings at every step of a run: the file has all of them, and starts anew at its limit.
TEST(LogRepeats, TheConsoleIsShortAndTheFileWhole) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("belay-log-{}", ::getpid());
  fs::create_directories(dir);
  set_file((dir / "log.txt").string());
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 1000; ++step) warn("step {}: trouble", step);
  for (int step = 1; step <= 5; ++step) error("step {}: failed", step);
  const std::string console = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(console, "trouble"), 3U + 9U);
  EXPECT_EQ(count_of(console, "failed"), 5U) << "errors are never left out";
  EXPECT_EQ(count_of(read_file((dir / "log.txt").string()), "trouble"), 1000U);
  // A new run counts from the start.
  set_file((dir / "log.txt").string());
  testing::internal::CaptureStderr();
  warn("step 1: trouble");
  EXPECT_EQ(count_of(testing::internal::GetCapturedStderr(), "trouble"), 1U);
  const std::string line(1000, 'x');
  for (int i = 0; i < 40'000; ++i) write_to_file(Level::info, line);
  set_file("");
  std::uintmax_t most = 0;
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(dir)) {
    most = std::max<std::uintmax_t>(most, entry.file_size());
    ++files;
  }
  EXPECT_EQ(files, 3U);
  EXPECT_LE(most, 16U << 20);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace belay::log
