// New rows of keys and values into a cache: a copy row by row.

#include <cstring>

#include "belay/base/parallel.h"
#include "belay/device/cpu/attention/kernels.h"

namespace belay::attention {

void run_scatter_rows(const ScatterRowsArgs& args, KernelContext&) {
  constexpr std::int64_t kRowsPerPiece = 32;
  const std::size_t size = size_of(args.src.dtype);
  const auto* from = static_cast<const std::byte*>(args.src.data);
  auto* to = static_cast<std::byte*>(args.dst.data);
  const auto* index = args.index.as<std::int32_t>();
  parallel_for(pieces_of(args.src.rows, kRowsPerPiece), [&](std::int64_t piece) {
    const std::int64_t end = std::min((piece + 1) * kRowsPerPiece, args.src.rows);
    for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) {
      std::memcpy(to + static_cast<std::size_t>(index[row] * args.dst.stride) * size,
                  from + static_cast<std::size_t>(row * args.src.stride) * size,
                  static_cast<std::size_t>(args.src.width) * size);
    }
  });
}

}  // namespace belay::attention
