#include "belay/train/replicas.h"

#include <algorithm>
#include <bit>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/parallel/compression_choice.h"

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
  const ExchangeOptions options = exchange_options(config_.comm, share().rounds());
  if (ranks_.size() > 1) bytes += exchange_bytes(table, options);
  if (compresses()) {
    bytes += CompressedReducer::bytes(table, bucket_elements(table, options),
                                      compression_options(config_.comm), ranks_.size());
  }
  if (config_.comm.order_stable) bytes += StableSum::bytes(table, share().rounds());
  return bytes;
}

void Replicas::warn_of_dropped(const std::string& before) const {
  if (before.empty() || before == "-" || !ranks_.first()) return;
  log::warn("what compression still owed in the snapshot is dropped: nothing is compressed now");
}

bool Replicas::compresses() const {
  return ranks_.size() > 1 && config_.comm.compression != comm::Compression::none;
}

std::unique_ptr<BucketReducer> Replicas::make_reducer(const ParameterTable& table,
                                                      const std::string& before) {
  comm::Communicator& communicator = *ranks_.communicator();
  const std::vector<bool> owed = marked_by_names(table, before);
  const auto dense = [&] {
    warn_of_dropped(before);
    return std::make_unique<DenseReducer>(communicator);
  };
  if (!compresses()) return dense();
  const std::int64_t elements =
      bucket_elements(table, exchange_options(config_.comm, share().rounds()));
  CompressionChoice choice =
      choose_compression(communicator, table, elements, config_.comm, owed, !before.empty());
  if (ranks_.first()) log::info("{}", choice.why);
  const std::vector<bool>& marks = choice.compressed;
  if (std::find(marks.begin(), marks.end(), true) == marks.end()) return dense();
  auto reducer = std::make_unique<CompressedReducer>(
      communicator, table, elements, compression_options(config_.comm), choice.compressed);
  compressor_ = reducer.get();
  return reducer;
}

std::string Replicas::compressed() const {
  if (!compresses()) return "";
  if (compressor_ == nullptr) return "-";
  return compressor_->residuals().names();
}

ResidualFile Replicas::collect_residuals(const std::string& run_dir) const {
  if (compressor_ == nullptr) return {};
  return {ranks_, compressor_->residuals(), run_dir + "/residuals.unfinished"};
}

void Replicas::restore_residuals(const std::string& snapshot) {
  if (compressor_ == nullptr) return;
  const int wrote = load_residuals(snapshot, ranks_, compressor_->residuals());
  if (wrote > 0 && wrote != ranks_.size() && ranks_.first()) {
    log::info("{} ranks take over what {} ranks still owed", ranks_.size(), wrote);
  }
}

void Replicas::connect(Device& device, Program& program, const std::string& compressed) {
  if (ranks_.size() == 1) {
    warn_of_dropped(compressed);
  } else {
    std::unique_ptr<BucketReducer> reducer = make_reducer(program.parameters().table(), compressed);
    reducer_ = reducer.get();
    const ExchangeOptions options = exchange_options(config_.comm, share().rounds());
    exchange_ = std::make_unique<GradientExchange>(
        program.parameters(), *ranks_.communicator(), options, std::move(reducer),
        make_round_sum(device, program.parameters(), options));
    program.set_exchange(exchange_.get());
  }
  if (config_.comm.order_stable) {
    stable_ = std::make_unique<StableSum>(device, program.parameters(), share().rounds());
    program.set_stable_sum(stable_.get());
  }
}

void Replicas::begin_step(double multiplier) {
  if (exchange_ == nullptr) return;
  exchange_->reset_times();
  reducer_->begin_step(multiplier);
}

void Replicas::end_step(bool updated) {
  if (reducer_ != nullptr) reducer_->end_step(updated);
}

BucketTraffic Replicas::traffic() const {
  return reducer_ == nullptr ? BucketTraffic{} : reducer_->traffic();
}

ExchangeTimes Replicas::times() const {
  return exchange_ == nullptr ? ExchangeTimes{} : exchange_->times();
}

}  // namespace belay
