#include "belay/train/rank_group.h"

#include <exception>

namespace belay {

void RankGroup::together(const std::function<void()>& body) const {
  if (size() == 1) return body();
  constexpr int kCodes = 16;  // more than there are exit codes
  const int none = size() * kCodes;
  int verdict = none;
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    // Whatever it is: the others wait for a verdict.
    const Error error = current_error();
    verdict = rank() * kCodes + static_cast<int>(error.code());
    failure = std::make_exception_ptr(error);
  }
  auto first = static_cast<double>(verdict);
  communicator_->all_reduce(&first, &first, 1, DType::f64, comm::ReduceOp::min);
  const auto found = static_cast<int>(first);
  if (found == none) return;
  if (found == verdict) std::rethrow_exception(failure);
  throw Error(static_cast<ExitCode>(found % kCodes), "");
}

std::string RankGroup::share(std::string text) const {
  if (size() == 1) return text;
  auto length = static_cast<double>(text.size());
  communicator_->broadcast(&length, &length, 1, DType::f64, 0);
  text.resize(static_cast<std::size_t>(length));
  communicator_->broadcast(text.data(), text.data(), std::ssize(text), DType::u8, 0);
  return text;
}

void RankGroup::keep_flight_records(const std::string& run) const {
  if (size() > 1) communicator_->flight().keep_in(run + "/flight");
}

void RankGroup::sum(std::span<double> values) const {
  if (size() == 1) return;
  communicator_->all_reduce(values.data(), values.data(), std::ssize(values), DType::f64,
                            comm::ReduceOp::sum);
}

}  // namespace belay
