// f16 beyond its range, in both worlds: infinities, or saturation with a flag.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "belay/device/device.h"
#include "belay/device/finite.h"
#include "belay/device/reference/element.h"

namespace belay {
namespace {

// A device with operands on it. Values go in and out by copies, so that any device will do.
class Bench {
 public:
  Bench(const std::string& device, Overflow overflow)
      : device_(make_device(device)), lane_(device_->create_lane()) {
    device_->set_overflow(overflow);
  }
  Tensor of(DType dtype, const Shape& shape, const std::vector<double>& values) {
    memory_.push_back(device_->allocate(static_cast<std::size_t>(shape.elements()) * size_of(dtype),
                                        "test operand"));
    const Tensor tensor{memory_.back()->address(), dtype, shape};
    std::vector<std::byte> host(tensor.bytes());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      store(host.data(), dtype, i, values[static_cast<std::size_t>(i) % values.size()]);
    }
    lane_->copy_in(tensor.data, host.data(), host.size());
    lane_->wait();
    return tensor;
  }
  Tensor empty(DType dtype, const Shape& shape) { return of(dtype, shape, {0.0}); }
  std::vector<double> read(const Tensor& tensor) {
    std::vector<std::byte> host(tensor.bytes());
    lane_->copy_out(host.data(), tensor.data, host.size());
    lane_->wait();
    std::vector<double> values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(load(host.data(), tensor.dtype, i));
    }
    return values;
  }
  template <class Args>
  void run(const Args& args) {
    launch(*lane_, args);
    lane_->wait();
  }
  Lane& lane() { return *lane_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Lane> lane_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

class OverflowTest : public testing::TestWithParam<const char*> {
 protected:
  Bench infinite_{GetParam(), Overflow::infinity};
  Bench saturating_{GetParam(), Overflow::saturate};
};

TEST_P(OverflowTest, SumsBeyondTheRange) {
  const std::vector<double> a = {60000, -60000, 1, 65504, 2};
  const std::vector<double> b = {6000, -6000, 1, 15, -2};
  const auto add = [&](Bench& bench) {
    const AddArgs args{bench.of(DType::f16, {37}, a), bench.of(DType::f16, {37}, b),
                       bench.empty(DType::f16, {37})};
    bench.run(args);
    return bench.read(args.dst);
  };
  const auto plain = add(infinite_);
  const auto clamped = add(saturating_);
  EXPECT_EQ(plain[0], INFINITY);
  EXPECT_EQ(plain[1], -INFINITY);
  EXPECT_EQ(plain[3], 65504);  // 65519 is nearer to it than to 65536
  EXPECT_EQ(clamped[0], 65504);
  EXPECT_EQ(clamped[1], -65504);
  for (const std::size_t at : {2U, 3U, 4U, 7U, 33U}) EXPECT_EQ(plain[at], clamped[at]);
  EXPECT_EQ(infinite_.lane().counts().overflowing, 1);
  EXPECT_EQ(saturating_.lane().counts().overflowing, 1);
}

TEST_P(OverflowTest, ProductsBeyondTheRange) {
  const auto product = [&](Bench& bench) {
    MatmulArgs args;
    args.a = bench.of(DType::f16, {5, 16}, {300});
    args.b = bench.of(DType::f16, {16, 7}, {100, -100, 1, 0, 2, 100, 100});
    args.dst = bench.empty(DType::f16, {5, 7});
    bench.run(args);
    return bench.read(args.dst);
  };
  const auto plain = product(infinite_);
  const auto clamped = product(saturating_);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(clamped[i], std::isinf(plain[i]) ? std::copysign(65504, plain[i]) : plain[i]);
  }
  EXPECT_EQ(plain[0], INFINITY);
  EXPECT_EQ(plain[1], -INFINITY);
  EXPECT_EQ(plain[2], 4800);
}

// The f32 accumulator goes far beyond f16 and comes back.
TEST_P(OverflowTest, PartialSumsMayLeaveTheRange) {
  MatmulArgs args;
  args.a = infinite_.of(DType::f16, {1, 4}, {1000, 1000, 1000, 1000});
  args.b = infinite_.of(DType::f16, {4, 1}, {1000, 1000, -1000, -999});
  args.dst = infinite_.empty(DType::f16, {1, 1});
  infinite_.run(args);
  EXPECT_EQ(infinite_.read(args.dst)[0], 1000);
  EXPECT_EQ(infinite_.lane().counts().overflowing, 0);
}

// The statistics of a norm are those of the sum as it is stored.
TEST_P(OverflowTest, NormOfASumThatSaturates) {
  const auto normalise = [&](Bench& bench, std::vector<double>& sum) {
    NormForwardArgs args;
    args.kind = NormKind::rms;
    args.src = bench.of(DType::f16, {3, 20}, {40000, -1, 20, 3});
    args.residual = bench.of(DType::f16, {3, 20}, {40000, 2, -3, 4});
    args.weight = bench.of(DType::f32, {20}, {1});
    args.sum = bench.empty(DType::f16, {3, 20});
    args.dst = bench.empty(DType::f16, {3, 20});
    args.rstd = bench.empty(DType::f32, {3});
    bench.run(args);
    sum = bench.read(args.sum);
    return bench.read(args.dst);
  };
  std::vector<double> sum;
  normalise(infinite_, sum);
  EXPECT_EQ(sum[0], INFINITY);
  EXPECT_EQ(infinite_.lane().counts().overflowing, 1);
  const auto dst = normalise(saturating_, sum);
  EXPECT_EQ(sum[0], 65504);
  EXPECT_EQ(sum[3], 7);
  EXPECT_NEAR(dst[0], 2.0, 1e-2);  // one element in four is large: rms = 65504 / 2
  EXPECT_EQ(saturating_.lane().counts().overflowing, 1);
}

TEST_P(OverflowTest, NanBecomesZeroWhereThingsSaturate) {
  const auto pass = [&](Bench& bench) {
    const CastArgs args{bench.of(DType::f32, {40}, {1, NAN, INFINITY, -1e9}),
                        bench.empty(DType::f16, {40})};
    bench.run(args);
    return bench.read(args.dst);
  };
  const auto plain = pass(infinite_);
  EXPECT_TRUE(std::isnan(plain[1]) && plain[2] == INFINITY && plain[3] == -INFINITY);
  const auto clamped = pass(saturating_);
  EXPECT_TRUE(clamped[0] == 1 && clamped[1] == 0 && clamped[2] == 65504 && clamped[3] == -65504);
}

// Squares of 100 sum up to 2e6. Protected, that is a number like any other.
TEST_P(OverflowTest, StatisticsOverflowOnlyWithoutProtection) {
  const auto rstd = [](Bench& bench, Inside inside) {
    NormForwardArgs args;
    args.kind = NormKind::rms;
    args.src = bench.of(DType::f16, {1, 200}, {100});
    args.weight = bench.of(DType::f32, {200}, {1});
    args.dst = bench.empty(DType::f16, {1, 200});
    args.rstd = bench.empty(DType::f32, {1});
    args.inside = inside;
    bench.run(args);
    return bench.read(args.rstd)[0];
  };
  EXPECT_NEAR(rstd(infinite_, Inside::full), 0.01, 1e-6);
  EXPECT_EQ(rstd(infinite_, Inside::stored), 0);
  EXPECT_NEAR(rstd(saturating_, Inside::saturated), 1 / std::sqrt(65504.0 / 200), 1e-4);
  const auto column = [](Bench& bench, Inside inside) {
    const ColumnSumArgs args{bench.of(DType::f16, {40, 3}, {3000, -1, 2}),
                             bench.of(DType::f32, {3}, {5}), inside};
    bench.run(args);
    return bench.read(args.dst)[0];
  };
  EXPECT_EQ(column(infinite_, Inside::full), 120005);
  EXPECT_EQ(column(infinite_, Inside::stored), INFINITY);
  EXPECT_EQ(column(saturating_, Inside::saturated), 65509);
}

TEST_P(OverflowTest, ScoresOverflowOnlyWithoutProtection) {
  const auto attend = [](Bench& bench, Inside inside) {
    AttentionForwardArgs args;
    args.shape = {1, 9, 9, 1, 1, 8, 0.001F};
    const auto rows = [&](double value) {
      return columns(bench.of(DType::f16, {9, 8}, {value}), 0, 8);
    };
    args.q = rows(200);
    args.k = rows(200);
    args.v = rows(3);
    args.dst = bench.empty(DType::f16, {9, 8});
    args.inside = inside;
    bench.run(args);
    return bench.read(args.dst)[70];
  };
  EXPECT_NEAR(attend(infinite_, Inside::full), 3, 0.01);
  EXPECT_TRUE(std::isnan(attend(infinite_, Inside::stored)));
  EXPECT_NEAR(attend(saturating_, Inside::saturated), 3, 0.01);
}

// The flag is sticky: it counts until it is reset, and calls that are fine do not clear it.
TEST_P(OverflowTest, CountsStayUntilTheyAreReset) {
  Bench& bench = saturating_;
  const Tensor big = bench.of(DType::f16, {8}, {65504});
  const Tensor small = bench.of(DType::f16, {8}, {1});
  const Tensor dst = bench.empty(DType::f16, {8});
  bench.run(AddArgs{big, big, dst});
  bench.run(AddArgs{small, small, dst});
  bench.run(AddArgs{big, big, dst});
  const Tensor wide = bench.of(DType::f32, {8}, {1});
  bench.run(AddArgs{wide, wide, wide});
  EXPECT_EQ(bench.lane().counts().overflowing, 2);
  EXPECT_EQ(bench.lane().counts().low_precision, 3);
  EXPECT_EQ(bench.lane().counts().full_precision, 1);
  bench.lane().reset_counts();
  EXPECT_EQ(bench.lane().counts().overflowing, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, OverflowTest, testing::Values("cpu", "reference", "guard"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FiniteTest, FindsOneBadElementWhereverItIs) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const std::int64_t width : {1, 7, 33, 64, 200001}) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(3 * (width + 2)) * 8);
      for (std::int64_t i = 0; i < 3 * (width + 2); ++i) store(bytes.data(), dtype, i, 1.5);
      const Rows rows{bytes.data(), dtype, 3, width, width + 2};
      EXPECT_FALSE(has_non_finite(rows));
      for (const std::int64_t column : {std::int64_t{0}, width / 2, width - 1}) {
        for (const double bad : {static_cast<double>(INFINITY), -static_cast<double>(INFINITY),
                                 static_cast<double>(NAN)}) {
          store(rows, 2, column, bad);
          EXPECT_TRUE(has_non_finite(rows)) << name_of(dtype) << " " << width << " " << column;
          store(rows, 2, column, 1.5);
        }
      }
      store(bytes.data(), dtype, width, INFINITY);  // between the rows
      EXPECT_FALSE(has_non_finite(rows));
    }
  }
  const std::vector<std::int32_t> whole(100, 0x7f800000);
  EXPECT_FALSE(has_non_finite({const_cast<std::int32_t*>(whole.data()), DType::i32, 1, 100, 100}));
}

}  // namespace
}  // namespace belay
