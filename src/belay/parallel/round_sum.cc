#include "belay/parallel/round_sum.h"

namespace belay {
namespace {

std::size_t floats(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

}  // namespace

RoundSum::RoundSum(Device& device, const ParameterStore& store, std::int64_t most_elements)
    : store_(store),
      sums_(device.allocate(floats(store.table().flat_elements()), "sums of rounds")),
      piece_(device.allocate(floats(most_elements), "piece of a round")) {}

std::size_t RoundSum::bytes(const ParameterTable& table, std::int64_t most_elements) {
  return floats(table.flat_elements()) + floats(most_elements);
}

void RoundSum::add(Lane& lane, const BucketPiece& piece, const float* values,
                   const RoundPlace& round) {
  const auto flat = [&](void* base, std::int64_t offset) {
    return Tensor{static_cast<float*>(base) + offset, DType::f32, {piece.count}};
  };
  const Tensor sum = flat(sums_->address(), store_.table()[piece.parameter].offset + piece.begin);
  const Tensor gradient = flat(store_.grad(piece.parameter).data, piece.begin);
  // Where the round's values go, and what they are added to there.
  const Tensor target = round.last ? gradient : round.first ? sum : flat(piece_->address(), 0);
  lane.copy_in(target.data, values, floats(piece.count));
  if (!round.first) launch(lane, AddArgs{sum, target, round.last ? gradient : sum});
}

}  // namespace belay
