#include "belay/train/replicas.h"

#include <algorithm>
#include <bit>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/parallel/compression_choice.h"

namespace belay {
namespace {

BatchShare share_of(const RunConfig& config, int rank, int ranks) {
  const TrainConfig& train = config.train;
  return {rank, ranks, train.micro_batch, train.global_batch / train.micro_batch};
}

ShardExchangeOptions shard_exchange(const comm::CommConfig& config) {
  return {static_cast<int>(config.buckets), config.overlap};
}

}  // namespace

ShardOptions sharding_of(const RunConfig& config, int rank, int ranks) {
  ShardOptions options;
  if (ranks == 1) return options;
  options.stage = static_cast<ZeroStage>(config.parallel.zero);
  options.rank = rank;
  options.ranks = ranks;
  const auto bytes = static_cast<std::int64_t>(config.comm.bucket_mb * 1e6);
  options.group_elements = std::max<std::int64_t>(1, bytes / 4);
  return options;
}

namespace {

// Elements of the largest bucket.
std::int64_t summed_at_once(const RunConfig& config, const ParameterTable& table, int rank,
                            int ranks) {
  const ShardOptions sharding = sharding_of(config, rank, ranks);
  if (sharding.stage == ZeroStage::none) {
    const std::int64_t rounds = share_of(config, rank, ranks).rounds();
    return bucket_elements(table, exchange_options(config.comm, rounds));
  }
  return ShardMap(table, sharding).largest_group();
}

}  // namespace

std::size_t exchange_bytes_of(const RunConfig& config, const ParameterTable& table, int rank,
                              int ranks) {
  std::size_t bytes = 0;
  std::int64_t summed = table.flat_elements();
  const ShardOptions sharding = sharding_of(config, rank, ranks);
  if (sharding.stage != ZeroStage::none) {
    const StoreOptions store{config.train.dtype, true, sharding};
    bytes += ShardedState::bytes(table, store, shard_exchange(config.comm));
    summed = ShardMap(table, sharding).shard_elements();
  } else if (ranks > 1) {
    const std::int64_t rounds = share_of(config, rank, ranks).rounds();
    bytes += exchange_bytes(table, exchange_options(config.comm, rounds));
  }
  if (ranks > 1 && config.comm.compression != comm::Compression::none) {
    bytes += CompressedReducer::bytes(table, summed_at_once(config, table, rank, ranks),
                                      compression_options(config.comm), ranks);
  }
  if (config.comm.order_stable) {
    bytes += StableSum::bytes(summed, share_of(config, rank, ranks).rounds());
  }
  return bytes;
}

Replicas::Replicas(const RankGroup& group, const RunConfig& config)
    : ranks_(group), config_(config) {
  BELAY_CHECK(share().micro_batches >= ranks_.size());  // resolve_batch() sees to it
  const auto ranks = static_cast<unsigned>(ranks_.size());
  if (!config.comm.order_stable || std::has_single_bit(ranks)) return;
  ranks_.alike([&] {
    fail(ExitCode::usage,
         "comm.order_stable = true gives the bits of one rank on a power of two of ranks, not on "
         "{}; use {} or {} ranks, or set it to false",
         ranks, std::bit_floor(ranks), std::bit_ceil(ranks));
  });
}

BatchShare Replicas::share() const {
  return share_of(config_, ranks_.rank(), ranks_.size());
}

bool Replicas::compresses() const {
  return ranks_.size() > 1 && config_.comm.compression != comm::Compression::none;
}

std::unique_ptr<BucketReducer> Replicas::make_compressor(const ParameterTable& table,
                                                         const std::string& before) {
  comm::Communicator& communicator = *ranks_.communicator();
  if (!compresses()) return nullptr;
  const std::vector<bool> kept = marked_by_names(table, before);
  const std::int64_t elements = summed_at_once(config_, table, ranks_.rank(), ranks_.size());
  CompressionChoice choice = choose_compression(communicator, table, elements, config_.comm,
                                                before.empty() ? nullptr : &kept);
  if (ranks_.first()) log::info("{}", choice.why);
  const std::vector<bool>& marks = choice.compressed;
  if (choice.measured) measured_compression_ = names_of(table, marks);
  if (std::find(marks.begin(), marks.end(), true) == marks.end()) return nullptr;
  auto reducer = std::make_unique<CompressedReducer>(
      communicator, table, elements, compression_options(config_.comm), choice.compressed);
  compressor_ = reducer.get();
  return reducer;
}

ResidualFile Replicas::collect_residuals(const std::string& run_dir) const {
  if (compressor_ == nullptr) return {};
  return {ranks_, compressor_->residuals(), run_dir + "/" + std::string(kUnfinishedResiduals)};
}

std::uint64_t Replicas::residual_bytes() const {
  return compressor_ == nullptr ? 0 : residual_file_bytes(compressor_->residuals(), ranks_.size());
}

void Replicas::restore_residuals(const std::string& snapshot) {
  if (compressor_ == nullptr) {
    if (ranks_.first() && has_residuals(snapshot)) {
      log::warn(
          "what compression still owed in the snapshot is dropped: nothing is compressed now");
    }
    return;
  }
  const int wrote = load_residuals(snapshot, ranks_, compressor_->residuals());
  if (wrote > 0 && wrote != ranks_.size() && ranks_.first()) {
    log::info("{} ranks take over what {} ranks still owed", ranks_.size(), wrote);
  }
}

void Replicas::connect(Device& device, Program& program, const std::string& measured) {
  const ParameterStore& store = program.parameters();
  if (ranks_.size() > 1) {
    comm::Communicator& communicator = *ranks_.communicator();
    // What buffers are made by.
    communicator.freeze("comm.bucket_mb", fmt::format("{}", config_.comm.bucket_mb));
    communicator.freeze("comm.buckets", fmt::format("{}", config_.comm.buckets));
    communicator.freeze("comm.overlap", fmt::format("{}", config_.comm.overlap));
    std::unique_ptr<BucketReducer> reducer = make_compressor(store.table(), measured);
    reducer_ = reducer.get();
    if (store.stage() != ZeroStage::none) {
      sharded_ = std::make_unique<ShardedState>(device, store, communicator,
                                                shard_exchange(config_.comm), std::move(reducer));
      program.set_sharded(sharded_.get());
      if (config_.comm.pipeline_depth > 0 && ranks_.first()) {
        log::info(
            "comm.pipeline_depth = {} changes nothing: with parallel.zero = {} the gradients of "
            "every micro-batch travel while the next one computes",
            config_.comm.pipeline_depth, config_.parallel.zero);
      }
    } else {
      if (reducer == nullptr) reducer = std::make_unique<DenseReducer>(communicator);
      reducer_ = reducer.get();
      const ExchangeOptions options = exchange_options(config_.comm, share().rounds());
      exchange_ = std::make_unique<GradientExchange>(
          store, communicator, options, std::move(reducer), make_round_sum(device, store, options));
      program.set_exchange(exchange_.get());
    }
  }
  if (config_.comm.order_stable) {
    stable_ = std::make_unique<StableSum>(device, store.owned_gradients(), share().rounds());
    program.set_stable_sum(stable_.get());
  }
}

void Replicas::begin_step(std::int64_t step, double multiplier) {
  if (exchange_ != nullptr) exchange_->reset_times();
  if (sharded_ != nullptr) {
    before_ = sharded_->times();
    sharded_->begin_step();
  }
  if (compressor_ != nullptr) compressor_->send_all(step <= config_.comm.compression_warmup);
  if (reducer_ != nullptr) reducer_->begin_step(multiplier);
}

void Replicas::end_step(bool updated) {
  if (reducer_ != nullptr) reducer_->end_step(updated);
}

BucketTraffic Replicas::traffic() const {
  if (sharded_ != nullptr) return sharded_->traffic();
  return reducer_ == nullptr ? BucketTraffic{} : reducer_->traffic();
}

void Replicas::share_weights(Program& program) {
  if (sharded_ != nullptr) sharded_->share_weights(program.lane());
}

ExchangeTimes Replicas::times() {
  if (sharded_ != nullptr) {
    const ShardedState::Times now = sharded_->times();
    return {now.busy_ms - before_.busy_ms, now.exposed_ms - before_.exposed_ms};
  }
  return exchange_ == nullptr ? ExchangeTimes{} : exchange_->times();
}

}  // namespace belay
