// Dropout with Philox4x32-10 in vectors: exactly the mask that random_block() defines.

#include "belay/base/philox.h"
#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/dropout.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// Blocks of four words made at a time; a multiple of the vector length. The words are kept as the
// bits of f32 lanes.
constexpr std::int64_t kBlocks = 64;

#if HWY_TARGET == HWY_SCALAR

void random_words(const RandomKey& key, std::uint64_t first_block, float* words) {
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    const PhiloxBlock block = random_block(key, first_block + b);
    std::memcpy(words + 4 * b, block.data(), sizeof(block));
  }
}

#else

// Each 64-bit lane holds one 32-bit word of a block's state in its low half; what the high half
// holds never matters, because products read the low halves only.
void random_words(const RandomKey& key, std::uint64_t first_block, float* words) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::RepartitionToNarrow<decltype(d)> d32;
  const auto step = static_cast<std::uint64_t>(hn::Lanes(d));
  const auto multiplier0 = hn::Set(d32, 0xD2511F53U);
  const auto multiplier1 = hn::Set(d32, 0xCD9E8D57U);
  const auto low_half = hn::Set(d, 0xffffffffU);
  for (std::uint64_t b = 0; b < kBlocks; b += step) {
    const auto index = hn::Iota(d, first_block + b);
    auto c0 = index;
    auto c1 = hn::ShiftRight<32>(index);
    auto c2 = hn::Set(d, std::uint64_t{key.step});
    auto c3 = hn::Set(d, std::uint64_t{key.stream});
    auto key0 = static_cast<std::uint32_t>(key.seed);
    auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto product0 = hn::MulEven(hn::BitCast(d32, c0), multiplier0);
      const auto product1 = hn::MulEven(hn::BitCast(d32, c2), multiplier1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d, std::uint64_t{key0}));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d, std::uint64_t{key1}));
      c1 = product1;
      c3 = product0;
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    const auto pair0 = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const auto pair1 = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(pair0, pair1, d, reinterpret_cast<std::uint64_t*>(words + 4 * b));
  }
}

#endif

template <class T>
void dropout_run(const DropoutArgs& args, Range run) {
  const T* src = args.src.as<T>();
  T* dst = args.dst.as<T>();
  const Vec probability = splat(args.probability);
  const Vec scale = splat(static_cast<float>(1.0 / (1.0 - static_cast<double>(args.probability))));
  const U32 d32;
  alignas(64) float words[4 * kBlocks];
  std::int64_t i = run.begin;
  while (i < run.end) {
    const std::uint64_t element = args.first_element + static_cast<std::uint64_t>(i);
    random_words(args.key, element / 4, words);
    const auto skipped = static_cast<std::int64_t>(element % 4);
    const std::int64_t count = std::min(4 * kBlocks - skipped, run.end - i);
    const float* own = words + skipped;
    for_vectors(count, [&](auto access, std::int64_t j) HWY_ATTR {
      const Vec word = access.load(own + j);
      const auto bits = hn::ShiftRight<8>(hn::BitCast(d32, word));
      const Vec uniform = hn::Mul(hn::ConvertTo(kF32, hn::BitCast(hn::RebindToSigned<F32>(), bits)),
                                  splat(0x1p-24F));
      const Vec kept = hn::Mul(access.load(src + i + j), scale);
      access.store(hn::IfThenElseZero(hn::Ge(uniform, probability), kept), dst + i + j);
    });
    i += count;
  }
}

void dropout(const DropoutArgs& args) {
  parallel_ranges(args.dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
    with_storage(args.src.dtype, [&](auto as) HWY_ATTR { dropout_run<decltype(as)>(args, run); });
  });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(dropout);

constexpr Candidate<DropoutArgs> kCandidates[] = {
    {"simd",
     [](const DropoutArgs& args) {
       return first_reason(unless_storable(args.src), unless_same(args.src, args.dst));
     },
     nullptr,
     [](const DropoutArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(dropout)
       (args);
     }},
    kReferenceKernel<DropoutArgs>};

}  // namespace

Candidates<DropoutArgs> cpu_candidates(OpTag<DropoutArgs>) {
  return kCandidates;
}

}  // namespace belay
#endif  // HWY_ONCE
