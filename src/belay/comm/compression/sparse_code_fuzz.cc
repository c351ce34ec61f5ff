// Any bytes are either refused with belay::Error or give ascending indices inside the tensor, which
// encode to bytes that decode to them again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/compression/sparse_code.h"

using namespace belay;
using namespace belay::comm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHead = 4;
  if (size <= kHead) return 0;
  const auto code = static_cast<IndexCode>(data[0] % kIndexCodes);
  const std::int64_t elements = 1 + data[1] + (std::int64_t{data[2]} << 8) * 3;
  const std::int64_t chosen = 1 + (data[3] * elements) / 256;
  std::vector<std::byte> coded(index_bytes(code, elements, chosen));
  for (std::size_t i = 0; i < coded.size(); ++i) {
    coded[i] = static_cast<std::byte>(data[kHead + i % (size - kHead)]);
  }
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(chosen));
  try {
    decode_indices(code, elements, coded.data(), indices);
  } catch (const Error&) {
    return 0;
  }
  std::int64_t before = -1;
  for (const std::uint32_t index : indices) {
    if (index <= before || index >= elements) std::abort();
    before = index;
  }
  std::vector<std::byte> again(coded.size());
  std::vector<std::uint32_t> decoded(indices.size());
  encode_indices(code, elements, indices, again.data());
  decode_indices(code, elements, again.data(), decoded);
  if (decoded != indices) std::abort();
  return 0;
}
