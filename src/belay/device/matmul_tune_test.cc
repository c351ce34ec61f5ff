#include "belay/device/matmul_tune.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "belay/base/error.h"
#include "belay/device/matmul_cache.h"
#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

namespace fs = std::filesystem;

class TuneTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        fs::temp_directory_path() / ("belay-tune-" + std::to_string(::getpid()) +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  [[nodiscard]] std::string cache() const { return (directory_ / "sub" / "matmul.json").string(); }
  static TuneOptions quick() {
    TuneOptions options;
    options.seconds = 0.01;
    options.repeats = 1;
    return options;
  }

  fs::path directory_;
};

const MatmulKey kKey{20, 30, 40, DType::f32, DType::f32, false, true, false, true};

TEST_F(TuneTest, ChoosesACandidateThatTakesTheShape) {
  const auto device = make_device("cpu");
  for (const DType src : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool accumulate : {false, true}) {
      const MatmulKey key{33, 65, 129, src, DType::f32, true, false, accumulate, !accumulate};
      const auto timings = time_matmul(*device, key, quick());
      for (const MatmulTiming& timing : timings) {
        EXPECT_FALSE(timing.problem.starts_with("wrong")) << timing.kernel << timing.problem;
        EXPECT_EQ(timing.problem.empty(), timing.best_s > 0) << timing.kernel;
      }
      const MatmulChoice choice = choose_matmul(key, timings, quick());
      EXPECT_FALSE(choice.kernel.empty());
      EXPECT_GT(choice.flops_per_s, 0);
    }
  }
}

// Both operands exceed what our own kernel packs at once, in depth and in lines.
TEST_F(TuneTest, OwnKernelIsRightOnLargeShapes) {
  const auto device = make_device("cpu");
  TuneOptions options = quick();
  options.only = "belay";
  for (const DType src : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType dst : {DType::f32, src}) {
      const MatmulKey key{2100, 2060, 2070, src, dst, false, true, true, true};
      EXPECT_EQ(tune_matmul(*device, key, options).kernel, "belay");
    }
  }
}

TEST_F(TuneTest, PrefersOurOwnOnlyWithinTheMargin) {
  std::vector<MatmulTiming> timings{{"belay", 1.004, 1.02, {}},
                                    {"other", 1.0, 1.0, {}},
                                    {"faster", 0.1, 0.1, "wrong result: 1 instead of 2"}};
  EXPECT_EQ(choose_matmul(kKey, timings, {}).kernel, "belay");
  timings[0].best_s = 1.1;
  EXPECT_EQ(choose_matmul(kKey, timings, {}).kernel, "other");
  EXPECT_DOUBLE_EQ(choose_matmul(kKey, timings, {}).flops_per_s, 2.0 * 20 * 30 * 40);
  timings[0].problem = timings[1].problem = "wrong result";
  EXPECT_THROW(choose_matmul(kKey, timings, {}), Error);
}

// A device whose first candidate is fast and wrong, as old builds of libraries can be.
class WrongDevice final : public Device {
 public:
  WrongDevice() : cpu_(make_device("cpu")) {
    std::get<Candidates<MatmulArgs>>(table_.candidates) = kCandidates;
  }
  std::string_view name() const override { return "wrong"; }
  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, std::string_view purpose) override {
    return cpu_->allocate(bytes, purpose);
  }
  std::unique_ptr<Lane> create_lane() override { return cpu_->create_lane(); }
  const KernelTable& kernels() const override { return table_; }

 private:
  static constexpr std::array<Candidate<MatmulArgs>, 3> kCandidates{{
      {"lazy", nullptr, nullptr, [](const MatmulArgs&, KernelContext&) {}},
      {"careless", nullptr, nullptr,
       [](const MatmulArgs& args, KernelContext& context) {
         MatmulArgs short_args = args;  // leaves the last row out
         short_args.dst = args.dst.rows(0, args.m() - 1);
         short_args.a = args.a.rows(0, args.m() - 1);
         run_reference(short_args, context);
       }},
      kReferenceKernel<MatmulArgs>,
  }};
  std::unique_ptr<Device> cpu_;
  KernelTable table_;
};

TEST_F(TuneTest, DiscardsWrongCandidates) {
  WrongDevice device;
  EXPECT_EQ(tune_matmul(device, kKey, quick()).kernel, "reference");
  MatmulKey accumulating = kKey;
  accumulating.accumulate = true;
  EXPECT_EQ(tune_matmul(device, accumulating, quick()).kernel, "reference");
}

TEST_F(TuneTest, MeasuresOnceAndReadsTheCacheAfterwards) {
  const std::vector<MatmulKey> keys{kKey, kKey, MatmulKey{1, 64, 64}};
  std::vector<bool> measured;
  const auto note = [&](const TuneProgress& progress) {
    EXPECT_EQ(progress.total, 2U);
    measured.push_back(progress.measured);
  };
  const auto first = make_device("cpu");
  tune_matmuls(*first, keys, cache(), quick(), note);
  const auto second = make_device("cpu");
  tune_matmuls(*second, keys, cache(), quick(), note);
  EXPECT_EQ(measured, (std::vector<bool>{true, true, false, false}));
  for (const MatmulKey& key : keys) {
    EXPECT_FALSE(first->matmul_choices().find(key).empty());
    EXPECT_EQ(first->matmul_choices().find(key), second->matmul_choices().find(key));
  }
  for (const auto& entry : fs::directory_iterator(fs::path(cache()).parent_path())) {
    EXPECT_EQ(entry.path().filename(), "matmul.json");  // nothing temporary is left
  }
}

TEST_F(TuneTest, RebuildsADamagedCache) {
  fs::create_directories(fs::path(cache()).parent_path());
  const MatmulChoice good{"belay", 1e9};
  MatmulCache writer(cache(), "here");
  writer.set(kKey, good);
  ASSERT_TRUE(writer.save());
  std::stringstream text;
  text << std::ifstream(cache()).rdbuf();
  ASSERT_NE(MatmulCache(cache(), "here").find(kKey), nullptr);
  EXPECT_EQ(MatmulCache(cache(), "elsewhere").find(kKey), nullptr);

  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string copy = text.str();
    const std::size_t at = copy.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return copy.replace(at, from.size(), to);
  };
  for (const std::string& content :
       {std::string(), std::string("[]"), text.str().substr(0, text.str().size() / 2),
        broken("\"format\": 1", "\"format\": 2"), broken("20x30x40", "20x30xforty"),
        broken("1000000000.0", "-1"), broken("\"belay\"", "\"\"")}) {
    std::ofstream(cache()) << content;
    EXPECT_EQ(MatmulCache(cache(), "here").find(kKey), nullptr) << content;
    const auto device = make_device("cpu");
    tune_matmuls(*device, std::vector<MatmulKey>{kKey}, cache(), quick());
    std::ifstream rebuilt(cache());
    std::stringstream now;
    now << rebuilt.rdbuf();
    EXPECT_NE(now.str().find("20x30x40"), std::string::npos);
  }
}

TEST_F(TuneTest, KeepsWhatOtherRunsAdded) {
  MatmulCache one(cache(), "one");
  MatmulCache two(cache(), "two");
  one.set(kKey, {"belay", 1});
  two.set(kKey, {"openblas", 2});
  ASSERT_TRUE(one.save());
  ASSERT_TRUE(two.save());
  EXPECT_EQ(MatmulCache(cache(), "one").find(kKey)->kernel, "belay");
  EXPECT_EQ(MatmulCache(cache(), "two").find(kKey)->kernel, "openblas");
}

TEST_F(TuneTest, AnUnwritableCacheIsNotFatal) {
  fs::create_directories(directory_);
  std::ofstream(directory_ / "sub") << "a file where a directory should be";
  const auto device = make_device("cpu");
  tune_matmuls(*device, std::vector<MatmulKey>{kKey}, cache(), quick());
  EXPECT_FALSE(device->matmul_choices().find(kKey).empty());
}

TEST_F(TuneTest, ADeviceWithOneKernelIsLeftAlone) {
  const auto device = make_device("reference");
  tune_matmuls(*device, std::vector<MatmulKey>{kKey}, cache(), quick());
  EXPECT_TRUE(device->matmul_choices().all().empty());
  EXPECT_FALSE(fs::exists(cache()));
}

}  // namespace
}  // namespace belay
