#include "belay/precision/gradient_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "belay/base/allocation_count.h"
#include "belay/base/error.h"
#include "belay/base/file.h"

namespace belay {
namespace {

class GradientRecordTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  void write(std::int64_t first, std::int64_t last, std::int64_t resumed) {
    GradientRecordWriter writer(path_, layers_, 65504, resumed);
    for (std::int64_t step = first; step <= last; ++step) {
      writer.append(step, 1024, std::vector<double>{0.5, static_cast<double>(step)});
    }
  }

  std::string path_ = ::testing::TempDir() + "belay-norms-" + std::to_string(::getpid());
  std::vector<std::string> layers_ = {"embedding", "layers.0"};
};

TEST_F(GradientRecordTest, ReadsBackWhatWasWritten) {
  write(1, 5, 0);
  const GradientRecord record = read_gradient_record(path_);
  EXPECT_EQ(record.layers, layers_);
  EXPECT_EQ(record.limit, 65504);
  EXPECT_EQ(record.steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(record.log2_scale[4], 10);
  EXPECT_EQ(record.code(3, 0), norm_code(0.5));
  EXPECT_EQ(record.code(3, 1), norm_code(4));
  EXPECT_EQ(std::filesystem::file_size(path_), 23 + 16 + 2 + 9 + 2 + 8 + 5 * (4 + 2 + 4));
}

TEST_F(GradientRecordTest, AResumedRunContinuesWhereItsSnapshotWas) {
  write(1, 8, 0);
  std::ofstream(path_, std::ios::app | std::ios::binary) << "torn";
  EXPECT_EQ(read_gradient_record(path_).steps.size(), 8U);
  write(6, 7, 5);
  EXPECT_EQ(read_gradient_record(path_).steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  layers_[1] = "layers.1";
  write(8, 8, 7);
  EXPECT_EQ(read_gradient_record(path_).steps, (std::vector<std::int64_t>{8}));
}

TEST_F(GradientRecordTest, AppendingAllocatesNothing) {
  GradientRecordWriter writer(path_, layers_, 65504, 0);
  const std::vector<double> norms = {1, 2};
  const std::int64_t before = allocation_count();
  for (int step = 1; step < 10; ++step) writer.append(step, 2, norms);
  EXPECT_EQ(allocation_count() - before, 0);
}

TEST_F(GradientRecordTest, RefusesWhatIsNoRecord) {
  write(1, 3, 0);
  const std::string good = read_file(path_);
  const auto refused = [](std::string bytes) {
    try {
      parse_gradient_record(bytes, "norms");
    } catch (const Error& error) {
      return error.code() == ExitCode::data;
    }
    return false;
  };
  for (std::size_t size = 0; size < good.size() - 30; ++size) {
    EXPECT_TRUE(refused(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(refused(good));
  std::string bad = good;
  bad[23 + 3] = '\x7f';  // two thousand million layers
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad[good.size() - 10] = 1;  // the last step
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace belay
