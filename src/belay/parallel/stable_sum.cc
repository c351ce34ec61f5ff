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

std::size_t StableSum::bytes(std::int64_t elements, std::int64_t rounds) {
  return level_count(rounds) * static_cast<std::size_t>(elements) * sizeof(float);
}

StableSum::StableSum(Device& device, const std::vector<Tensor>& gradients, std::int64_t rounds) {
  constexpr std::int64_t kAlignment = 32;  // elements
  std::int64_t elements = 0;
  for (const Tensor& gradient : gradients) {
    gradients_.push_back(gradient.reshaped({gradient.elements()}));
    offsets_.push_back(elements);
    elements += (gradient.elements() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (std::size_t i = 0; i < level_count(rounds); ++i) {
    levels_.push_back(
        device.allocate(static_cast<std::size_t>(elements) * sizeof(float), "order-stable sums"));
  }
}

Tensor StableSum::level(std::size_t number, std::size_t gradient) const {
  auto* base = static_cast<float*>(levels_[number]->address());
  return {base + offsets_[gradient], DType::f32, gradients_[gradient].shape};
}

void StableSum::add(Lane& lane) {
  const std::size_t free = lowest_free(rounds_);
  BELAY_CHECK(free < levels_.size());
  for (std::size_t index = 0; index < gradients_.size(); ++index) {
    const Tensor& round = gradients_[index];
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
  for (std::size_t index = 0; index < gradients_.size(); ++index) {
    const Tensor& total = gradients_[index];
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
