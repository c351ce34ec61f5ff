#include "belay/train/replicas.h"

#include <bit>

#include "belay/base/error.h"

namespace belay {

Replicas::Replicas(const RankGroup& group, const RunConfig& config)
    : ranks_(group), config_(config) {
  BELAY_CHECK(share().micro_batches >= ranks_.size());  // resolve_batch() sees to it
  const auto ranks = static_cast<unsigned>(ranks_.size());
  if (config.comm.order_stable && !std::has_single_bit(ranks)) {
    fail(ExitCode::usage,
         "comm.order_stable = true gives the bits of one rank on a power of two of ranks, not on "
         "{}; use {} or {} ranks, or set it to false",
         ranks, std::bit_floor(ranks), std::bit_ceil(ranks));
  }
}

BatchShare Replicas::share() const {
  const TrainConfig& train = config_.train;
  return {ranks_.rank(), ranks_.size(), train.micro_batch, train.global_batch / train.micro_batch};
}

std::size_t Replicas::bytes(const ParameterTable& table) const {
  std::size_t bytes = 0;
  if (ranks_.size() > 1) bytes += exchange_bytes(table, exchange_options(config_.comm));
  if (config_.comm.order_stable) bytes += StableSum::bytes(table, share().rounds());
  return bytes;
}

void Replicas::connect(Device& device, Program& program) {
  if (ranks_.size() > 1) {
    exchange_ = std::make_unique<GradientExchange>(program.parameters(), *ranks_.communicator(),
                                                   exchange_options(config_.comm));
    program.set_exchange(exchange_.get());
  }
  if (config_.comm.order_stable) {
    stable_ = std::make_unique<StableSum>(device, program.parameters(), share().rounds());
    program.set_stable_sum(stable_.get());
  }
}

void Replicas::begin_step() {
  if (exchange_ != nullptr) exchange_->reset_times();
}

ExchangeTimes Replicas::times() const {
  return exchange_ == nullptr ? ExchangeTimes{} : exchange_->times();
}

}  // namespace belay
