// Every matrix-product candidate against the definition in double.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/base/philox.h"
#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/matmul/gemm.h"
#include "belay/device/cpu/matmul/gemm_simd.h"
#include "belay/device/matmul_choice.h"
#include "belay/device/reference/element.h"

namespace belay {
namespace {

// Memory that ends exactly at an inaccessible page and has guard bytes in front, so both reads
// past the end and writes before the start show. The start has whatever alignment that leaves.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + kGuard + page - 1) / page * page;
    base_ = static_cast<std::byte*>(::mmap(nullptr, mapped_ + page, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(base_ + mapped_, page, PROT_NONE);
    mapped_with_fence_ = mapped_ + page;
    std::memset(base_, kMark, mapped_ - bytes);
  }
  ~Fenced() { ::munmap(base_, mapped_with_fence_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  [[nodiscard]] std::byte* data() const { return base_ + mapped_ - bytes_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool intact() const {
    return std::all_of(base_, data(), [](std::byte b) { return b == std::byte{kMark}; });
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xA5;
  std::size_t bytes_, mapped_ = 0, mapped_with_fence_ = 0;
  std::byte* base_ = nullptr;
};

// One thread while it lives: most of these shapes are too small to share.
class Serial {
 public:
  Serial() { set_thread_count(1); }
  ~Serial() { set_thread_count(before_); }
  Serial(const Serial&) = delete;
  Serial& operator=(const Serial&) = delete;

 private:
  int before_ = thread_count();
};

// One product with its operands, and what it should give.
class Case {
 public:
  explicit Case(const MatmulKey& key)
      : key_(key),
        a_(size(key.m * key.k, key.src)),
        b_(size(key.k * key.n, key.src)),
        bias_(size(key.n, key.src)),
        dst_(size(key.m * key.n, key.dst)) {
    fill(a_, key.src, 1);
    fill(b_, key.src, 2);
    fill(bias_, key.src, 3);
    fill(dst_, key.dst, 4);
    args_.a = {a_.data(), key.src, key.transpose_a ? Shape{key.k, key.m} : Shape{key.m, key.k}};
    args_.b = {b_.data(), key.src, key.transpose_b ? Shape{key.n, key.k} : Shape{key.k, key.n}};
    if (key.bias) args_.bias = {bias_.data(), key.src, Shape{key.n}};
    args_.dst = {dst_.data(), key.dst, Shape{key.m, key.n}};
    args_.transpose_a = key.transpose_a;
    args_.transpose_b = key.transpose_b;
    args_.accumulate = key.accumulate;
    work_out();
  }
  [[nodiscard]] const MatmulArgs& args() const { return args_; }

  // The result's bytes after one run from the initial dst.
  std::vector<std::byte> run(const Candidate<MatmulArgs>& candidate) {
    fill(dst_, key_.dst, 4);
    const std::size_t bytes = candidate.workspace != nullptr ? candidate.workspace(args_) : 0;
    if (workspace_.size() < bytes + 128) workspace_.resize(bytes + 128);
    // Scratch holds rubbish when a call begins.
    std::memset(workspace_.data(), 0xFF, workspace_.size());
    void* aligned = workspace_.data();
    std::size_t space = workspace_.size();
    KernelContext context{static_cast<std::byte*>(std::align(128, bytes, aligned, space)), bytes};
    candidate.run(args_, context);
    return {dst_.data(), dst_.data() + dst_.bytes()};
  }

  // Empty, or the first entry out of tolerance.
  [[nodiscard]] std::string difference() const {
    if (!a_.intact() || !b_.intact() || !bias_.intact() || !dst_.intact()) return "wrote outside";
    for (std::int64_t i = 0; i < key_.m * key_.n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double got = load(dst_.data(), key_.dst, i);
      // |error| <= n u sum|a b| for any order of the sum (Higham, Accuracy and Stability, eq. 3.5).
      const double terms = static_cast<double>(key_.k + 4);
      double tolerance = terms * 0x1p-24 * magnitude_[at];
      if (key_.dst == DType::bf16) tolerance = 2 * tolerance + 0x1p-8 * std::abs(expected_[at]);
      if (key_.dst == DType::f16) {
        tolerance = 2 * tolerance + 0x1p-11 * std::abs(expected_[at]) + 0x1p-25;
      }
      if (!(std::abs(got - expected_[at]) <= tolerance)) {
        return fmt::format("[{}, {}]: {} instead of {}, off by {} times the tolerance", i / key_.n,
                           i % key_.n, got, expected_[at],
                           std::abs(got - expected_[at]) / tolerance);
      }
    }
    return {};
  }

 private:
  static std::size_t size(std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  }
  static void fill(const Fenced& memory, DType dtype, std::uint32_t stream) {
    const auto count = static_cast<std::int64_t>(memory.bytes() / size_of(dtype));
    PhiloxBlock block{};
    for (std::int64_t i = 0; i < count; ++i) {
      if (i % 4 == 0) block = random_block({5, 0, stream}, static_cast<std::uint64_t>(i / 4));
      const float word = uniform(block[static_cast<std::size_t>(i % 4)]);
      store(memory.data(), dtype, i, 2.0 * static_cast<double>(word) - 1.0);
    }
  }
  // The reference in double; once more on absolute values for the scale of rounding errors.
  void work_out() {
    const Serial serial;
    const auto prepare = [](const Tensor& from, bool absolute, std::vector<double>& to) -> Tensor {
      if (from.empty()) return {};
      to.resize(static_cast<std::size_t>(from.elements()));
      for (std::int64_t i = 0; i < from.elements(); ++i) {
        const double value = load(from, i);
        to[static_cast<std::size_t>(i)] = absolute ? std::abs(value) : value;
      }
      return {to.data(), DType::f64, from.shape};
    };
    for (const bool absolute : {false, true}) {
      std::vector<double> a, b, bias, dst;
      MatmulArgs args = args_;
      args.a = prepare(args_.a, absolute, a);
      args.b = prepare(args_.b, absolute, b);
      args.bias = prepare(args_.bias, absolute, bias);
      args.dst = prepare(args_.dst, absolute, dst);
      KernelContext context;
      run_reference(args, context);
      (absolute ? magnitude_ : expected_) = dst;
    }
  }

  MatmulKey key_;
  Fenced a_, b_, bias_, dst_;
  MatmulArgs args_;
  std::vector<double> expected_;
  std::vector<double> magnitude_;
  std::vector<std::byte> workspace_;
};

struct Sizes {
  std::int64_t m, n, k;
};

// Sizes around every tile, vector and block border.
const std::vector<Sizes> kSizes{
    {1, 1, 1},    {1, 2, 3},     {2, 1, 7},    {3, 17, 1},    {1, 65, 33},  {7, 31, 17},
    {13, 32, 16}, {14, 33, 31},  {15, 63, 65}, {28, 64, 32},  {29, 65, 63}, {33, 127, 2},
    {4, 129, 97}, {3, 66, 70},   {2, 18, 50},  {63, 7, 129},  {1, 97, 400}, {5, 3, 1601},
    {2, 70, 777}, {127, 15, 64}, {65, 96, 40}, {129, 130, 9}, {16, 48, 385}};

std::vector<MatmulKey> keys_of(const Sizes& sizes) {
  std::vector<MatmulKey> keys;
  constexpr std::pair<DType, DType> kTypes[] = {
      {DType::f32, DType::f32},   {DType::f32, DType::bf16}, {DType::f32, DType::f16},
      {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f16, DType::f16},
      {DType::f16, DType::f32}};
  for (const auto& [src, dst] : kTypes) {
    for (int flags = 0; flags < 16; ++flags) {
      keys.push_back({sizes.m, sizes.n, sizes.k, src, dst, (flags & 1) != 0, (flags & 2) != 0,
                      (flags & 4) != 0, (flags & 8) != 0});
    }
  }
  return keys;
}

std::span<const Candidate<MatmulArgs>> candidates() {
  return cpu_candidates(OpTag<MatmulArgs>{});
}

const Candidate<MatmulArgs>& own_candidate() {
  return *std::find_if(candidates().begin(), candidates().end(),
                       [](const auto& candidate) { return candidate.name == "belay"; });
}

TEST(Matmul, EveryCandidateComputesTheDefinition) {
  const Serial serial;
  for (const Sizes& sizes : kSizes) {
    for (const MatmulKey& key : keys_of(sizes)) {
      Case product(key);
      // Our own kernel serves what the libraries decline: it is the one that every shape can use.
      ASSERT_EQ(gemm_declines(product.args()), nullptr) << key.text();
      for (const auto& candidate : candidates()) {
        if (candidate.declines != nullptr && candidate.declines(product.args()) != nullptr) {
          continue;
        }
        const auto first = product.run(candidate);
        ASSERT_EQ(product.difference(), "") << candidate.name << " " << key.text();
        ASSERT_EQ(first, product.run(candidate)) << candidate.name << " repeated " << key.text();
      }
    }
  }
}

// Sums that take several passes.
TEST(Matmul, OwnKernelSumsDeepProducts) {
  for (const Sizes& sizes : {Sizes{3, 5, 7000}, Sizes{30, 70, 3200}}) {
    for (const MatmulKey& key : keys_of(sizes)) {
      if (key.accumulate != key.bias) continue;
      Case product(key);
      product.run(own_candidate());
      ASSERT_EQ(product.difference(), "") << key.text();
    }
  }
}

TEST(Matmul, OwnKernelGivesTheSameBitsForAnyThreadCount) {
  const int threads = thread_count();
  for (const Sizes& sizes : {Sizes{129, 200, 130}, Sizes{20, 600, 800}, Sizes{40, 65, 3500}}) {
    for (const MatmulKey& key : keys_of(sizes)) {
      if (key.accumulate != key.bias || key.transpose_a != key.transpose_b) continue;
      Case product(key);
      set_thread_count(1);
      const auto serial = product.run(own_candidate());
      for (const int count : {2, 3}) {
        set_thread_count(count);
        EXPECT_EQ(serial, product.run(own_candidate())) << key.text() << " x" << count;
      }
      set_thread_count(threads);
    }
  }
}

// The portable kernels, for every instruction set that this processor has and the build holds.
TEST(Matmul, PortableKernelsComputeTheDefinition) {
  const Serial serial;
  const std::int64_t targets = hwy::SupportedTargets();
  for (std::int64_t left = targets; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    std::vector<GemmKernel> kernels;
    add_simd_kernels(kernels);
    hwy::SetSupportedTargetsForTest(0);
    ASSERT_EQ(kernels.size(), 3U);
    for (std::size_t i = 0; i < kSizes.size(); i += 3) {
      for (const MatmulKey& key : keys_of(kSizes[i])) {
        static GemmKernel kernel;
        kernel = *std::find_if(kernels.begin(), kernels.end(),
                               [&](const GemmKernel& one) { return one.src == key.src; });
        const Candidate<MatmulArgs> candidate{
            kernel.name, nullptr,
            [](const MatmulArgs& args) { return gemm_workspace(kernel, args); },
            [](const MatmulArgs& args, KernelContext& context) {
              run_gemm(kernel, args, context);
            }};
        Case product(key);
        product.run(candidate);
        ASSERT_EQ(product.difference(), "") << kernel.name << " " << key.text();
      }
    }
  }
}

}  // namespace
}  // namespace belay
