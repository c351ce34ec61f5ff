// Fill, cast and add.

#include <algorithm>

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/elementwise.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

// body(access, i) over all elements of dst in pieces.
template <class T, class Body>
HWY_INLINE void over_elements(const Tensor& dst, const Body& body) {
  const bool stream = streams(dst);
  parallel_ranges(dst.elements(), kPieceElements, [&](Range run) HWY_ATTR {
    const auto shifted = [&](auto access, std::int64_t i) HWY_ATTR { body(access, run.begin + i); };
    if (stream) {
      for_vectors_streaming(dst.as<T>() + run.begin, run.size(), shifted);
      hwy::FlushStream();
    } else {
      for_vectors(run.size(), shifted);
    }
  });
}

template <class T>
void fill_with(const FillArgs& args) {
  const Vec value = splat(static_cast<float>(args.value));
  T* dst = args.dst.as<T>();
  over_elements<T>(args.dst,
                   [&](auto access, std::int64_t i) HWY_ATTR { access.store(value, dst + i); });
}

void fill(const FillArgs& args) {
  with_storage(args.dst.dtype, [&](auto to) HWY_ATTR { fill_with<decltype(to)>(args); });
}

template <class From, class To>
void cast_between(const CastArgs& args) {
  const From* src = args.src.as<From>();
  To* dst = args.dst.as<To>();
  over_elements<To>(args.dst, [&](auto access, std::int64_t i)
                                  HWY_ATTR { access.store(access.load(src + i), dst + i); });
}

void cast(const CastArgs& args) {
  with_storage(args.src.dtype, [&](auto from) HWY_ATTR {
    with_storage(args.dst.dtype,
                 [&](auto to) HWY_ATTR { cast_between<decltype(from), decltype(to)>(args); });
  });
}

template <class T>
void add_as(const AddArgs& args) {
  const T* a = args.a.as<T>();
  const T* b = args.b.as<T>();
  T* dst = args.dst.as<T>();
  over_elements<T>(args.dst, [&](auto access, std::int64_t i) HWY_ATTR {
    access.store(hn::Add(access.load(a + i), access.load(b + i)), dst + i);
  });
}

void add(const AddArgs& args) {
  with_storage(args.dst.dtype, [&](auto to) HWY_ATTR { add_as<decltype(to)>(args); });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(fill);
HWY_EXPORT(cast);
HWY_EXPORT(add);

constexpr Candidate<FillArgs> kFill[] = {
    {"simd", [](const FillArgs& args) { return unless_storable(args.dst); }, nullptr,
     [](const FillArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(fill)
       (args);
     }},
    kReferenceKernel<FillArgs>};

constexpr Candidate<CastArgs> kCast[] = {{"simd",
                                          [](const CastArgs& args) {
                                            return first_reason(unless_storable(args.src),
                                                                unless_storable(args.dst));
                                          },
                                          nullptr,
                                          [](const CastArgs& args, KernelContext&) {
                                            HWY_DYNAMIC_DISPATCH(cast)
                                            (args);
                                          }},
                                         kReferenceKernel<CastArgs>};

constexpr Candidate<AddArgs> kAdd[] = {{"simd",
                                        [](const AddArgs& args) {
                                          return first_reason(unless_storable(args.dst),
                                                              unless_same(args.dst, args.a),
                                                              unless_same(args.dst, args.b));
                                        },
                                        nullptr,
                                        [](const AddArgs& args, KernelContext&) {
                                          HWY_DYNAMIC_DISPATCH(add)
                                          (args);
                                        }},
                                       kReferenceKernel<AddArgs>};

}  // namespace

Candidates<FillArgs> cpu_candidates(OpTag<FillArgs>) {
  return kFill;
}
Candidates<CastArgs> cpu_candidates(OpTag<CastArgs>) {
  return kCast;
}
Candidates<AddArgs> cpu_candidates(OpTag<AddArgs>) {
  return kAdd;
}

}  // namespace belay
#endif  // HWY_ONCE
