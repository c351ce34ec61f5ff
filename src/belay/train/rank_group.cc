#include "belay/train/rank_group.h"

namespace belay {

std::string RankGroup::share(std::string text) const {
  if (size() == 1) return text;
  auto length = static_cast<double>(text.size());
  communicator_->broadcast(&length, &length, 1, DType::f64, 0);
  text.resize(static_cast<std::size_t>(length));
  communicator_->broadcast(text.data(), text.data(), std::ssize(text), DType::u8, 0);
  return text;
}

void RankGroup::sum(std::span<double> values) const {
  if (size() == 1) return;
  communicator_->all_reduce(values.data(), values.data(), std::ssize(values), DType::f64,
                            comm::ReduceOp::sum);
}

}  // namespace belay
