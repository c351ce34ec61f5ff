#include "belay/machine/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/machine/busy_clock.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/machine/bandwidth.cc"
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All three work on `count` floats, a multiple of 64, at 64-byte aligned addresses.
void stream_copy(const float* src, float* dst, std::size_t count) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Stream(hn::Load(d, src + i), d, dst + i);
  hwy::FlushStream();
}

void stream_triad(const float* a, const float* b, float* dst, std::size_t count) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 3.0F);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::Stream(hn::MulAdd(scale, hn::Load(d, b + i), hn::Load(d, a + i)), d, dst + i);
  }
  hwy::FlushStream();
}

float stream_read(const float* src, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::Load(d, src + i));
    sum1 = hn::Add(sum1, hn::Load(d, src + i + lanes));
    sum2 = hn::Add(sum2, hn::Load(d, src + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::Load(d, src + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(stream_copy);
HWY_EXPORT(stream_triad);
HWY_EXPORT(stream_read);

constexpr std::int64_t kPieceElements = std::int64_t{1} << 16;
constexpr std::int64_t kArrayElements = std::int64_t{1} << 24;  // 64 MiB: beyond any L3 in use
constexpr int kTries = 12;

// Private pages, returned to the system when done.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED) {
      fail(ExitCode::capacity, "cannot allocate {} bytes to measure this machine: {}", bytes,
           std::strerror(errno));
    }
    ::madvise(address_, bytes, MADV_HUGEPAGE);
  }
  ~Pages() { ::munmap(address_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] float* floats() const { return static_cast<float*>(address_); }

 private:
  void* address_ = nullptr;
  std::size_t bytes_;
};

template <class Body>
double seconds_of(Body&& body) {
  const double begin = busy_seconds();
  body();
  return busy_seconds() - begin;
}

double matmul_flops_per_s(dnnl::memory::data_type dtype, float* a, float* b, float* c) {
  constexpr dnnl::memory::dim kSide = 1024;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc matrix({kSide, kSide}, dtype, dnnl::memory::format_tag::ab);
  const dnnl::memory::desc any({kSide, kSide}, dtype, dnnl::memory::format_tag::any);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(matrix, any, matrix), engine);
  const dnnl::matmul product(description);
  dnnl::memory weights(description.weights_desc(), engine);
  dnnl::memory plain(matrix, engine, b);
  dnnl::reorder(plain, weights).execute(stream, plain, weights);
  const std::unordered_map<int, dnnl::memory> args{{DNNL_ARG_SRC, dnnl::memory(matrix, engine, a)},
                                                   {DNNL_ARG_WEIGHTS, weights},
                                                   {DNNL_ARG_DST, dnnl::memory(matrix, engine, c)}};
  double seconds = INFINITY;
  for (int i = 0; i < kTries; ++i) {
    seconds = std::min(seconds, seconds_of([&] {
                         product.execute(stream, args);
                         stream.wait();
                       }));
  }
  return 2.0 * kSide * kSide * kSide / seconds;
}

}  // namespace

MachineRates measure_rates() {
  constexpr auto kBytes = static_cast<double>(kArrayElements) * sizeof(float);
  const Pages pages(3 * static_cast<std::size_t>(kArrayElements) * sizeof(float));
  float* a = pages.floats();
  float* b = a + kArrayElements;
  float* c = b + kArrayElements;
  const auto in_pieces = [](auto&& body) {
    parallel_for(kArrayElements / kPieceElements,
                 [&](std::int64_t piece) { body(piece, piece * kPieceElements); });
  };
  in_pieces([&](std::int64_t, std::int64_t first) {
    std::fill_n(a + first, kPieceElements, 1.0F);
    std::fill_n(b + first, kPieceElements, 0x1p-10F);
    std::fill_n(c + first, kPieceElements, 0.0F);
  });

  // Taken in turn, so that a busy moment hits all three alike.
  double copy = INFINITY;
  double triad = INFINITY;
  double read = INFINITY;
  for (int i = 0; i < kTries; ++i) {
    copy = std::min(copy, seconds_of([&] {
                      in_pieces([&](std::int64_t, std::int64_t first) {
                        HWY_DYNAMIC_DISPATCH(stream_copy)(a + first, c + first, kPieceElements);
                      });
                    }));
    triad = std::min(triad, seconds_of([&] {
                       in_pieces([&](std::int64_t, std::int64_t first) {
                         HWY_DYNAMIC_DISPATCH(stream_triad)
                         (a + first, b + first, c + first, kPieceElements);
                       });
                     }));
    read = std::min(read, seconds_of([&] {
                      // The sums are kept, so the reads cannot be dropped.
                      in_pieces([&](std::int64_t piece, std::int64_t first) {
                        c[piece] = HWY_DYNAMIC_DISPATCH(stream_read)(a + first, kPieceElements);
                      });
                    }));
  }
  MachineRates rates;
  rates.copy_bytes_per_s = 2.0 * kBytes / copy;
  rates.triad_bytes_per_s = 3.0 * kBytes / triad;
  rates.read_bytes_per_s = kBytes / read;
  rates.memory_bytes_per_s = std::max(rates.copy_bytes_per_s, rates.triad_bytes_per_s);

  using dnnl::memory;
  rates.gemm_f32_flops_per_s = matmul_flops_per_s(memory::data_type::f32, a, b, c);
  if (dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16) {
    rates.gemm_bf16_flops_per_s = matmul_flops_per_s(memory::data_type::bf16, a, b, c);
  }
  return rates;
}

}  // namespace belay
#endif  // HWY_ONCE
