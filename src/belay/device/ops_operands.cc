// Operands of the operator benchmark.

#include <algorithm>
#include <cmath>

#include "belay/base/philox.h"
#include "belay/device/ops_workloads.h"
#include "belay/device/reference/element.h"

namespace belay {

Tensor BenchOperands::real(DType dtype, const Shape& shape, double low, double high) {
  return filled(dtype, shape, [=](double draw) { return low + (high - low) * draw; });
}

Tensor BenchOperands::indices(std::int64_t count, std::int64_t limit) {
  return filled(DType::i32, {count},
                [=](double draw) { return std::floor(draw * static_cast<double>(limit)); });
}

Tensor BenchOperands::positions(std::int64_t count, std::int64_t length) {
  return whole_numbers(count, [=](std::int64_t i) { return i % length; });
}

Tensor BenchOperands::document_starts(std::int64_t count, std::int64_t seq, std::int64_t length) {
  return whole_numbers(count, [=](std::int64_t i) { return i % seq / length * length; });
}

Tensor BenchOperands::whole_numbers(std::int64_t count,
                                    const std::function<std::int64_t(std::int64_t)>& value) {
  const Tensor tensor = arena_.allocate(DType::i32, {count});
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value(i));
  }
  lane_.copy_in(tensor.data, values.data(), tensor.bytes());
  lane_.wait();
  return tensor;
}

Tensor BenchOperands::bytes(std::size_t count) {
  return arena_.allocate(DType::u8, {static_cast<std::int64_t>(count)});
}

Tensor BenchOperands::filled(DType dtype, const Shape& shape,
                             const std::function<double(double)>& map) {
  constexpr std::int64_t kBlock = 4099;
  const Tensor tensor = arena_.allocate(dtype, shape);
  const std::int64_t count = std::min(kBlock, shape.elements());
  std::vector<std::byte> block(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxBlock words = random_block({1, 2, 3}, static_cast<std::uint64_t>(i));
    store(block.data(), dtype, i, map(static_cast<double>(uniform(words[0]))));
  }
  for (std::size_t done = 0; done < tensor.bytes(); done += block.size()) {
    lane_.copy_in(tensor.as<std::byte>() + done, block.data(),
                  std::min(block.size(), tensor.bytes() - done));
  }
  lane_.wait();
  return tensor;
}

}  // namespace belay
