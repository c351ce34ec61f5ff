// Token and position embedding, and its gradient.

#include "belay/device/cpu/kernels.h"
#include "belay/device/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belay/device/cpu/embedding.cc"
// foreach_target.h compiles this file again per instruction set, so the order matters.
// clang-format off
#include "belay/base/simd_targets.h"
#include "hwy/foreach_target.h"
#include "belay/device/cpu/simd.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace belay::HWY_NAMESPACE {

template <class From, class To>
void forward_rows(const EmbeddingForwardArgs& args, Range rows, bool stream) {
  const std::int64_t hidden = args.dst.dim(1);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    const From* token = args.table.as<From>() + args.tokens.as<std::int32_t>()[t] * hidden;
    const From* position = nullptr;
    if (!args.positions.empty()) {
      position = args.positions_table.as<From>() + args.positions.as<std::int32_t>()[t] * hidden;
    }
    To* dst = args.dst.as<To>() + t * hidden;
    const auto body = [&](auto access, std::int64_t i) HWY_ATTR {
      Vec value = access.load(token + i);
      if (position != nullptr) value = hn::Add(value, access.load(position + i));
      access.store(value, dst + i);
    };
    if (stream) {
      for_vectors_streaming(dst, hidden, body);
    } else {
      for_vectors(hidden, body);
    }
  }
  if (stream) hwy::FlushStream();
}

void embedding_forward(const EmbeddingForwardArgs& args) {
  const bool stream = streams(args.dst);
  parallel_ranges(args.dst.dim(0), rows_per_piece(args.dst.dim(1)), [&](Range rows) HWY_ATTR {
    with_storage(args.table.dtype, [&](auto from) HWY_ATTR {
      with_storage(args.dst.dtype, [&](auto to) HWY_ATTR {
        forward_rows<decltype(from), decltype(to)>(args, rows, stream);
      });
    });
  });
}

// Table rows are dealt to a fixed number of pieces by index, and each piece walks the tokens in
// order: so rows that meet are added in rising t, and no two pieces touch the same row.
constexpr std::int64_t kDeal = 16;
constexpr std::int64_t kColumns = 1024;

template <class T>
void scatter_add(const std::int32_t* indices, const Tensor& d_dst, float* d_table) {
  const std::int64_t count = d_dst.dim(0);
  const std::int64_t hidden = d_dst.dim(1);
  const T* gradients = d_dst.as<T>();
  const std::int64_t blocks = pieces_of(hidden, kColumns);
  parallel_for(kDeal * blocks, [&](std::int64_t piece) HWY_ATTR {
    const std::int64_t hand = piece % kDeal;
    const std::int64_t begin = piece / kDeal * kColumns;
    const std::int64_t width = std::min(kColumns, hidden - begin);
    for (std::int64_t t = 0; t < count; ++t) {
      if (indices[t] % kDeal != hand) continue;
      const T* src = gradients + t * hidden + begin;
      float* dst = d_table + indices[t] * hidden + begin;
      for_vectors(width, [&](auto access, std::int64_t i) HWY_ATTR {
        access.store(hn::Add(access.load(dst + i), access.load(src + i)), dst + i);
      });
    }
  });
}

template <class T>
void backward(const EmbeddingBackwardArgs& args) {
  scatter_add<T>(args.tokens.as<std::int32_t>(), args.d_dst, args.d_table.as<float>());
  if (!args.d_positions_table.empty()) {
    scatter_add<T>(args.positions.as<std::int32_t>(), args.d_dst,
                   args.d_positions_table.as<float>());
  }
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  with_storage(args.d_dst.dtype, [&](auto as) HWY_ATTR { backward<decltype(as)>(args); });
}

}  // namespace belay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace belay {
namespace {

HWY_EXPORT(embedding_forward);
HWY_EXPORT(embedding_backward);

constexpr Candidate<EmbeddingForwardArgs> kForward[] = {
    {"simd",
     [](const EmbeddingForwardArgs& args) {
       return first_reason(unless_storable(args.table), unless_storable(args.dst),
                           unless_same(args.table, args.positions_table));
     },
     nullptr,
     [](const EmbeddingForwardArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(embedding_forward)(args);
     }},
    kReferenceKernel<EmbeddingForwardArgs>};

constexpr Candidate<EmbeddingBackwardArgs> kBackward[] = {
    {"simd",
     [](const EmbeddingBackwardArgs& args) {
       return first_reason(unless_storable(args.d_dst), unless_f32(args.d_positions_table));
     },
     nullptr,
     [](const EmbeddingBackwardArgs& args, KernelContext&) {
       HWY_DYNAMIC_DISPATCH(embedding_backward)(args);
     }},
    kReferenceKernel<EmbeddingBackwardArgs>};

}  // namespace

Candidates<EmbeddingForwardArgs> cpu_candidates(OpTag<EmbeddingForwardArgs>) {
  return kForward;
}
Candidates<EmbeddingBackwardArgs> cpu_candidates(OpTag<EmbeddingBackwardArgs>) {
  return kBackward;
}

}  // namespace belay
#endif  // HWY_ONCE
