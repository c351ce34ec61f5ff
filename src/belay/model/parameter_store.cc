#include "belay/model/parameter_store.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/base/philox.h"

namespace belay {
namespace {

// Two normal values from two words (Box & Muller, Ann. Math. Stat. 29, 1958).
void normal_pair(std::uint32_t a, std::uint32_t b, float std, float* dst) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double radius = std::sqrt(-2.0 * std::log(u)) * static_cast<double>(std);
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  dst[0] = static_cast<float>(radius * std::cos(angle));
  dst[1] = static_cast<float>(radius * std::sin(angle));
}

// Elements [first, first + size) of a parameter; first is a multiple of 4.
void fill_normal(std::span<float> values, std::int64_t first, const RandomKey& key, float std) {
  constexpr std::int64_t kPiece = 1 << 14;
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for(pieces_of(count, kPiece), [&](std::int64_t piece) {
    const std::int64_t end = std::min(count, (piece + 1) * kPiece);
    for (std::int64_t i = piece * kPiece; i < end; i += 4) {
      const PhiloxBlock words = random_block(key, static_cast<std::uint64_t>((first + i) / 4));
      std::array<float, 4> drawn{};
      normal_pair(words[0], words[1], std, drawn.data());
      normal_pair(words[2], words[3], std, drawn.data() + 2);
      const std::int64_t n = std::min<std::int64_t>(4, end - i);
      for (std::int64_t j = 0; j < n; ++j) {
        values[static_cast<std::size_t>(i + j)] = drawn[static_cast<std::size_t>(j)];
      }
    }
  });
}

// Random streams below this belong to dropout (see model/pass.h).
constexpr std::uint32_t kInitStream = 1U << 31;

}  // namespace

ParameterStore::Bytes ParameterStore::bytes(const ParameterTable& table,
                                            const StoreOptions& options) {
  const auto flat = static_cast<std::size_t>(table.flat_elements());
  Bytes bytes;
  bytes.masters = flat * 4;
  if (options.train) {
    bytes.grads = flat * 4;
    bytes.moments = flat * 8;
  }
  if (options.compute != DType::f32) bytes.copies = flat * size_of(options.compute);
  return bytes;
}

ParameterStore::ParameterStore(Device& device, const ParameterTable& table,
                               const StoreOptions& options)
    : table_(table), options_(options) {
  const Bytes size = bytes(table, options);
  masters_ = device.allocate(size.masters, "parameters");
  if (options.train) {
    grads_ = device.allocate(size.grads, "gradients");
    m_ = device.allocate(size.moments / 2, "first moments");
    v_ = device.allocate(size.moments / 2, "second moments");
  }
  if (size.copies != 0) copies_ = device.allocate(size.copies, "low-precision weights");
}

Tensor ParameterStore::view(const std::unique_ptr<DeviceMemory>& block, DType dtype,
                            int index) const {
  const Parameter& parameter = table_[index];
  auto* base = static_cast<std::byte*>(block->address());
  return {base + static_cast<std::size_t>(parameter.offset) * size_of(dtype), dtype,
          parameter.shape};
}

Tensor ParameterStore::copy(int index) const {
  if (copies_ == nullptr || !table_[index].compute_copy) return {};
  return view(copies_, options_.compute, index);
}

Tensor ParameterStore::weight(int index) const {
  const Tensor low = copy(index);
  return low.empty() ? master(index) : low;
}

void ParameterStore::initialise(Lane& lane, std::uint64_t seed) const {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // elements in host memory at once
  std::vector<float> values;
  for (int index = 0; index < table_.size(); ++index) {
    const Parameter& parameter = table_[index];
    const RandomKey key{seed, 0, kInitStream + static_cast<std::uint32_t>(index)};
    const Tensor flat = master(index).reshaped({parameter.elements()});
    for (std::int64_t begin = 0; begin < parameter.elements(); begin += kChunk) {
      const std::int64_t end = std::min(parameter.elements(), begin + kChunk);
      values.assign(static_cast<std::size_t>(end - begin),
                    parameter.init == Init::ones ? 1.0F : 0.0F);
      if (parameter.init == Init::normal) {
        fill_normal(values, begin, key, static_cast<float>(parameter.init_std));
      }
      write(lane, flat.rows(begin, end), values);
    }
  }
  refresh_copies(lane);
}

void ParameterStore::write(Lane& lane, const Tensor& device_tensor, std::span<const float> host) {
  BELAY_CHECK(device_tensor.bytes() == host.size_bytes());
  lane.copy_in(device_tensor.data, host.data(), host.size_bytes());
  lane.wait();
}

void ParameterStore::read(Lane& lane, const Tensor& device_tensor, std::span<float> host) {
  BELAY_CHECK(device_tensor.bytes() == host.size_bytes());
  lane.copy_out(host.data(), device_tensor.data, host.size_bytes());
  lane.wait();
}

void ParameterStore::refresh_copies(Lane& lane) const {
  for (int index = 0; index < table_.size(); ++index) {
    const Tensor low = copy(index);
    if (!low.empty()) launch(lane, CastArgs{master(index), low});
  }
  lane.wait();
}

}  // namespace belay
