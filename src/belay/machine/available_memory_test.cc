#include "belay/machine/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "belay/base/error.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "belay_available_memory";
    fs::remove_all(root_);
    write("/proc/meminfo",
          "MemTotal: 100 kB\nMemFree:  7 kB\nMemAvailable:   50 kB\nCached: 3 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(AvailableMemoryTest, IsTheKernelsWithoutGroups) {
  EXPECT_EQ(available_memory(root_), 50U * 1024U);
}

TEST_F(AvailableMemoryTest, IsWhatTheTightestGroupLeaves) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "9000\n");
  EXPECT_EQ(available_memory(root_), 50U * 1024U);
  write("/sys/fs/cgroup/a/memory.max", "10000\n");
  write("/sys/fs/cgroup/a/memory.current", "9500\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 7000\ninactive_file 2500\n");
  EXPECT_EQ(available_memory(root_), 3000U);
  write("/sys/fs/cgroup/memory.max", "1000\n");  // as a container sees its own group
  write("/sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(available_memory(root_), 0U);
}

TEST_F(AvailableMemoryTest, ReadsVersionOneToo) {
  write("/proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/x\n");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8000\n");
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "5000\n");
  EXPECT_EQ(available_memory(root_), 3000U);
}

TEST_F(AvailableMemoryTest, UnknownIsZero) {
  EXPECT_EQ(available_memory(root_ + "/nothing"), 0U);
}

TEST(RequireMemoryTest, SaysWhatWhoAndHow) {
  require_memory(1, "a byte", "");
  try {
    require_memory(std::size_t{1} << 60, "the model", "take bf16");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::capacity);
    EXPECT_NE(std::string(error.what()).find("the model needs 1152921504.61 GB"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("take bf16"), std::string::npos);
  }
}

}  // namespace
}  // namespace belay
