#include "belay/snapshot/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;  // elements
// Rows moved together when a matrix is transposed: one cache line of f32.
constexpr std::size_t kRowBlock = 16;

template <class T, class Convert>
void decode_as(std::span<const std::byte> src, std::span<float> dst, Convert convert) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    T value;
    std::memcpy(&value, src.data() + i * sizeof(T), sizeof(T));
    dst[i] = convert(value);
  }
}

template <class T, class Convert>
bool encode_as(std::span<const float> src, std::span<std::byte> dst, Convert convert) {
  bool fits = true;
  for (std::size_t i = 0; i < src.size(); ++i) {
    const T value = convert(src[i]);
    fits &= !std::isinf(to_float(value)) || std::isinf(src[i]);
    std::memcpy(dst.data() + i * sizeof(T), &value, sizeof(T));
  }
  return fits;
}

std::size_t width_of(const Parameter& parameter) {
  return parameter.shape.rank() == 2 ? static_cast<std::size_t>(parameter.shape[1]) : 1;
}

// Encodes into a buffer of its own and passes the bytes on.
class Encoder {
 public:
  Encoder(const HfPart& part, DType dtype,
          const std::function<void(std::span<const std::byte>)>& append)
      : part_(part), dtype_(dtype), append_(append) {}

  void put(std::span<const float> values) {
    bytes_.resize(values.size() * size_of(dtype_));
    if (!encode_elements(dtype_, values, bytes_)) {
      fail(ExitCode::data,
           "tensor '{}': a value is too large for {}; write it as bf16 or f32 instead", part_.name,
           name_of(dtype_));
    }
    append_(bytes_);
  }

 private:
  const HfPart& part_;
  DType dtype_;
  const std::function<void(std::span<const std::byte>)>& append_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::optional<DType> weight_dtype(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return DType::f32;
    case StoredType::f16:
      return DType::f16;
    case StoredType::bf16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

StoredType stored_type(DType dtype) {
  BELAY_CHECK(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  return dtype == DType::f32    ? StoredType::f32
         : dtype == DType::bf16 ? StoredType::bf16
                                : StoredType::f16;
}

void decode_elements(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
  BELAY_CHECK(src.size() == dst.size() * size_of(dtype));
  if (dst.empty()) return;
  if (dtype == DType::f32) {
    std::memcpy(dst.data(), src.data(), src.size());
  } else if (dtype == DType::bf16) {
    decode_as<Bf16>(src, dst, [](Bf16 value) { return to_float(value); });
  } else {
    BELAY_CHECK(dtype == DType::f16);
    decode_as<F16>(src, dst, [](F16 value) { return to_float(value); });
  }
}

bool encode_elements(DType dtype, std::span<const float> src, std::span<std::byte> dst) {
  BELAY_CHECK(dst.size() == src.size() * size_of(dtype));
  if (src.empty()) return true;
  if (dtype == DType::f32) {
    std::memcpy(dst.data(), src.data(), dst.size());
    return true;
  }
  if (dtype == DType::bf16) {
    return encode_as<Bf16>(src, dst, [](float value) { return to_bf16(value); });
  }
  BELAY_CHECK(dtype == DType::f16);
  return encode_as<F16>(src, dst, [](float value) { return to_f16(value); });
}

std::vector<std::uint64_t> part_shape(const Parameter& parameter, const HfPart& part) {
  const auto rows = static_cast<std::uint64_t>(part.row_end - part.row_begin);
  if (parameter.shape.rank() == 1) return {rows};
  const auto width = static_cast<std::uint64_t>(width_of(parameter));
  if (part.transposed) return {width, rows};
  return {rows, width};
}

void read_part(const Parameter& parameter, const HfPart& part, DType dtype,
               std::span<const std::byte> src, std::span<float> dst) {
  const std::size_t width = width_of(parameter);
  const auto first = static_cast<std::size_t>(part.row_begin);
  const auto rows = static_cast<std::size_t>(part.row_end - part.row_begin);
  if (!part.transposed) {
    decode_elements(dtype, src, dst.subspan(first * width, rows * width));
    return;
  }
  std::vector<float> block(kRowBlock * rows);
  for (std::size_t begin = 0; begin < width; begin += kRowBlock) {
    const std::size_t count = std::min(kRowBlock, width - begin);
    decode_elements(dtype,
                    src.subspan(begin * rows * size_of(dtype), count * rows * size_of(dtype)),
                    std::span(block).first(count * rows));
    for (std::size_t row = 0; row < rows; ++row) {
      float* to = dst.data() + (first + row) * width + begin;
      for (std::size_t i = 0; i < count; ++i) to[i] = block[i * rows + row];
    }
  }
}

void write_part(const Parameter& parameter, const HfPart& part, DType dtype,
                std::span<const float> src,
                const std::function<void(std::span<const std::byte>)>& append) {
  const std::size_t width = width_of(parameter);
  const auto first = static_cast<std::size_t>(part.row_begin);
  const auto rows = static_cast<std::size_t>(part.row_end - part.row_begin);
  Encoder encoder(part, dtype, append);
  if (!part.transposed) {
    const std::span<const float> values = src.subspan(first * width, rows * width);
    for (std::size_t done = 0; done < values.size(); done += kChunk) {
      encoder.put(values.subspan(done, std::min(kChunk, values.size() - done)));
    }
    return;
  }
  std::vector<float> block(kRowBlock * rows);
  for (std::size_t begin = 0; begin < width; begin += kRowBlock) {
    const std::size_t count = std::min(kRowBlock, width - begin);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* from = src.data() + (first + row) * width + begin;
      for (std::size_t i = 0; i < count; ++i) block[i * rows + row] = from[i];
    }
    encoder.put(std::span(block).first(count * rows));
  }
}

}  // namespace belay
