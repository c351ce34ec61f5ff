#include "belay/comm/compression/sparse_code.h"

#include <array>
#include <bit>
#include <cstring>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

constexpr std::size_t kMaskWord = sizeof(std::uint64_t);

std::int64_t runs_of(std::int64_t elements, std::int64_t length) {
  return (elements + length - 1) / length;
}

template <class T>
void put(std::byte*& dst, T value) {
  std::memcpy(dst, &value, sizeof(value));
  dst += sizeof(value);
}

template <class T>
T take(const std::byte*& src) {
  T value;
  std::memcpy(&value, src, sizeof(value));
  src += sizeof(value);
  return value;
}

[[noreturn]] void refuse() {
  fail(ExitCode::communication,
       "a compressed gradient arrived damaged: its indices do not fit the tensor; the ranks run "
       "different versions, or memory is faulty");
}

// Counts per run first, then the places within the runs.
template <class Offset, class Count, int bits>
void encode_runs(std::int64_t elements, std::span<const std::uint32_t> indices, std::byte* dst) {
  const std::int64_t runs = runs_of(elements, std::int64_t{1} << bits);
  std::byte* offsets = dst + static_cast<std::size_t>(runs) * sizeof(Count);
  std::size_t next = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const std::size_t first = next;
    while (next < indices.size() && static_cast<std::int64_t>(indices[next] >> bits) == run) {
      put(offsets, static_cast<Offset>(indices[next++]));
    }
    put(dst, static_cast<Count>(next - first));
  }
}

template <class Offset, class Count, int bits>
void decode_runs(std::int64_t elements, const std::byte* src, std::span<std::uint32_t> indices) {
  const std::int64_t runs = runs_of(elements, std::int64_t{1} << bits);
  const std::byte* offsets = src + static_cast<std::size_t>(runs) * sizeof(Count);
  std::size_t next = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const std::size_t count = take<Count>(src);
    if (count > indices.size() - next) refuse();
    const auto base = static_cast<std::uint32_t>(run << bits);
    for (std::size_t i = 0; i < count; ++i) indices[next++] = base + take<Offset>(offsets);
  }
  if (next != indices.size()) refuse();
}

void encode_mask(std::int64_t elements, std::span<const std::uint32_t> indices, std::byte* dst) {
  std::size_t next = 0;
  for (std::int64_t begin = 0; begin < elements; begin += 64) {
    std::uint64_t word = 0;
    while (next < indices.size() && static_cast<std::int64_t>(indices[next]) < begin + 64) {
      word |= std::uint64_t{1} << (indices[next++] & 63U);
    }
    put(dst, word);
  }
}

void decode_mask(std::int64_t elements, const std::byte* src, std::span<std::uint32_t> indices) {
  std::size_t next = 0;
  for (std::int64_t begin = 0; begin < elements; begin += 64) {
    auto word = take<std::uint64_t>(src);
    if (static_cast<std::size_t>(std::popcount(word)) > indices.size() - next) refuse();
    for (; word != 0; word &= word - 1) {
      indices[next++] =
          static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
  if (next != indices.size()) refuse();
}

}  // namespace

std::string_view name_of(IndexCode code) {
  constexpr std::array<std::string_view, kIndexCodes> kNames = {"words", "halves", "bytes", "mask"};
  return kNames[static_cast<std::size_t>(code)];
}

std::size_t index_bytes(IndexCode code, std::int64_t elements, std::int64_t chosen) {
  const auto each = static_cast<std::size_t>(chosen);
  switch (code) {
    case IndexCode::words:
      return 4 * each;
    case IndexCode::halves:
      return 2 * each + 4 * static_cast<std::size_t>(runs_of(elements, 1 << 16));
    case IndexCode::bytes:
      return each + 2 * static_cast<std::size_t>(runs_of(elements, 1 << 8));
    case IndexCode::mask:
      break;
  }
  return kMaskWord * static_cast<std::size_t>(runs_of(elements, 64));
}

IndexCode best_index_code(std::int64_t elements, std::int64_t chosen) {
  auto best = IndexCode::words;
  for (const IndexCode code : {IndexCode::halves, IndexCode::bytes, IndexCode::mask}) {
    if (index_bytes(code, elements, chosen) < index_bytes(best, elements, chosen)) best = code;
  }
  return best;
}

void encode_indices(IndexCode code, std::int64_t elements, std::span<const std::uint32_t> indices,
                    std::byte* dst) {
  switch (code) {
    case IndexCode::words:
      std::memcpy(dst, indices.data(), indices.size_bytes());
      return;
    case IndexCode::halves:
      return encode_runs<std::uint16_t, std::uint32_t, 16>(elements, indices, dst);
    case IndexCode::bytes:
      return encode_runs<std::uint8_t, std::uint16_t, 8>(elements, indices, dst);
    case IndexCode::mask:
      return encode_mask(elements, indices, dst);
  }
}

void decode_indices(IndexCode code, std::int64_t elements, const std::byte* src,
                    std::span<std::uint32_t> indices) {
  switch (code) {
    case IndexCode::words:
      std::memcpy(indices.data(), src, indices.size_bytes());
      break;
    case IndexCode::halves:
      decode_runs<std::uint16_t, std::uint32_t, 16>(elements, src, indices);
      break;
    case IndexCode::bytes:
      decode_runs<std::uint8_t, std::uint16_t, 8>(elements, src, indices);
      break;
    case IndexCode::mask:
      decode_mask(elements, src, indices);
      break;
  }
  std::int64_t before = -1;
  for (const std::uint32_t index : indices) {
    if (static_cast<std::int64_t>(index) <= before) refuse();
    before = index;
  }
  if (before >= elements) refuse();
}

}  // namespace belay::comm
