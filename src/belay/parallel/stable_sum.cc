#include "belay/parallel/stable_sum.h"

#include <bit>

namespace belay {
namespace {

// Bit l of the number of rounds says whether level l holds a subtree of 2^l rounds. Adding one
// merges the levels below the lowest free one, as a binary counter carries.
std::size_t lowest_free(std::uint64_t rounds) {
  return static_cast<std::size_t>(std::countr_one(rounds));
}

std::size_t level_count(std::int64_t rounds) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(rounds)));
}

}  // namespace

std::size_t StableSum::bytes(const ParameterTable& table, std::int64_t rounds) {
  return level_count(rounds) * static_cast<std::size_t>(table.flat_elements()) * sizeof(float);
}

StableSum::StableSum(Device& device, const ParameterStore& store, std::int64_t rounds)
    : store_(store) {
  const auto bytes = static_cast<std::size_t>(store.table().flat_elements()) * sizeof(float);
  for (std::size_t i = 0; i < level_count(rounds); ++i) {
    levels_.push_back(device.allocate(bytes, "order-stable sums"));
  }
}

Tensor StableSum::level(std::size_t number, int parameter) const {
  auto* base = static_cast<float*>(levels_[number]->address());
  return {
      base + store_.table()[parameter].offset, DType::f32, {store_.table()[parameter].elements()}};
}

void StableSum::add(Lane& lane) {
  const std::size_t free = lowest_free(rounds_);
  BELAY_CHECK(free < levels_.size());
  for (int index = 0; index < store_.table().size(); ++index) {
    const Tensor round = store_.grad(index).reshaped({store_.table()[index].elements()});
    const Tensor dst = level(free, index);
    if (free == 0) {
      launch(lane, CastArgs{round, dst});
    } else {
      launch(lane, AddArgs{level(0, index), round, dst});
      for (std::size_t l = 1; l < free; ++l) launch(lane, AddArgs{level(l, index), dst, dst});
    }
    launch(lane, FillArgs{round, 0.0});
  }
  ++rounds_;
}

void StableSum::finish(Lane& lane) {
  for (int index = 0; index < store_.table().size(); ++index) {
    const Tensor total = store_.grad(index).reshaped({store_.table()[index].elements()});
    bool first = true;
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      if ((rounds_ >> l & 1) == 0) continue;
      if (first) {
        launch(lane, CastArgs{level(l, index), total});
      } else {
        launch(lane, AddArgs{level(l, index), total, total});
      }
      first = false;
    }
  }
  rounds_ = 0;
}

void StableScalar::add(double value) {
  const std::size_t free = lowest_free(rounds_);
  for (std::size_t l = 0; l < free; ++l) value = levels_[l] + value;
  levels_[free] = value;
  ++rounds_;
}

double StableScalar::finish() {
  double total = 0;
  bool first = true;
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    if ((rounds_ >> l & 1) == 0) continue;
    total = first ? levels_[l] : levels_[l] + total;
    first = false;
  }
  rounds_ = 0;
  return total;
}

}  // namespace belay
