#include "belay/parallel/gradient_exchange.h"

#include <algorithm>

#include "belay/base/stopwatch.h"
#include "belay/comm/short_turns.h"

namespace belay {
namespace {

using Clock = std::chrono::steady_clock;

struct BucketSizes {
  std::int64_t elements = 0;  // of each
  std::int64_t buckets = 0;
};

BucketSizes bucket_sizes(const ParameterTable& table, const ExchangeOptions& options) {
  const std::int64_t total = std::max<std::int64_t>(1, table.parameter_count());
  const auto wanted = static_cast<std::int64_t>(options.bucket_bytes / sizeof(float));
  const std::int64_t elements = std::min(std::max<std::int64_t>(1, wanted), total);
  const std::int64_t all = (total + elements - 1) / elements;
  if (options.pipeline_depth > 0) return {elements, options.pipeline_depth * all};
  return {elements, options.overlap ? std::min<std::int64_t>(options.buckets, all) : all};
}

}  // namespace

ExchangeOptions exchange_options(const comm::CommConfig& config, std::int64_t rounds) {
  ExchangeOptions options{static_cast<std::size_t>(config.bucket_mb * 1e6),
                          static_cast<int>(config.buckets), config.overlap};
  if (rounds > 1)
    options.pipeline_depth = static_cast<int>(std::min(config.pipeline_depth, rounds));
  return options;
}

std::int64_t bucket_elements(const ParameterTable& table, const ExchangeOptions& options) {
  return bucket_sizes(table, options).elements;
}

std::size_t exchange_bytes(const ParameterTable& table, const ExchangeOptions& options) {
  const BucketSizes sizes = bucket_sizes(table, options);
  std::size_t bytes = static_cast<std::size_t>(sizes.elements * sizes.buckets) * sizeof(float);
  if (options.pipeline_depth > 0) bytes += RoundSum::bytes(table, sizes.elements);
  return bytes;
}

std::unique_ptr<RoundSum> make_round_sum(Device& device, const ParameterStore& store,
                                         const ExchangeOptions& options) {
  if (options.pipeline_depth == 0) return nullptr;
  return std::make_unique<RoundSum>(device, store, bucket_elements(store.table(), options));
}

GradientExchange::GradientExchange(const ParameterStore& store, comm::Communicator& communicator,
                                   const ExchangeOptions& options,
                                   std::unique_ptr<BucketReducer> reducer,
                                   std::unique_ptr<RoundSum> rounds)
    : store_(store),
      communicator_(communicator),
      reducer_(reducer != nullptr ? std::move(reducer)
                                  : std::make_unique<DenseReducer>(communicator)),
      rounds_(std::move(rounds)),
      options_(options),
      capacity_(bucket_sizes(store.table(), options).elements) {
  BELAY_CHECK(options.buckets >= 1 && (options.overlap || options.pipeline_depth == 0));
  BELAY_CHECK((rounds_ != nullptr) == (options.pipeline_depth > 0));
  buckets_.resize(static_cast<std::size_t>(bucket_sizes(store.table(), options).buckets));
  for (Bucket& bucket : buckets_) {
    bucket.memory = static_cast<float*>(
        communicator_.allocate(static_cast<std::size_t>(capacity_) * sizeof(float)));
    bucket.pieces.reserve(static_cast<std::size_t>(store.table().size()));
  }
  order_.reserve(static_cast<std::size_t>(store.table().size()));
  thread_ = std::thread([this] { work(); });
}

GradientExchange::~GradientExchange() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const Bucket& bucket : buckets_) communicator_.deallocate(bucket.memory);
}

void GradientExchange::begin(Lane& lane, GradientListener* after, const RoundPlace& round) {
  BELAY_CHECK(pipelined() || (round.first && round.last));
  lane_ = &lane;
  after_ = after;
  round_ = round;
  first_pass_ = order_.empty();
  const std::lock_guard lock(mutex_);
  released_ = options_.overlap;
}

GradientExchange::Bucket& GradientExchange::open_bucket() {
  if (held_ == buckets_.size()) take_back();
  return buckets_[next_];
}

void GradientExchange::announce_all() {
  for (const int parameter : order_) gradient_ready(parameter);
}

void GradientExchange::gradient_ready(int parameter) {
  if (first_pass_) order_.push_back(parameter);
  const Tensor gradient = store_.grad(parameter);
  const std::int64_t elements = gradient.elements();
  for (std::int64_t begin = 0; begin < elements;) {
    Bucket& bucket = open_bucket();
    const std::int64_t count = std::min(elements - begin, capacity_ - bucket.used);
    lane_->copy_out(bucket.memory + bucket.used, gradient.as<float>() + begin,
                    static_cast<std::size_t>(count) * sizeof(float));
    bucket.pieces.push_back({parameter, begin, count, bucket.used, begin + count == elements});
    bucket.used += count;
    begin += count;
    if (bucket.used == capacity_) hand_over();
  }
  // The next round adds to it; the last one's sums come in its place.
  if (!round_.last) launch(*lane_, FillArgs{gradient, 0.0});
}

// The bucket that was being filled goes to the thread.
void GradientExchange::hand_over() {
  lane_->wait();
  buckets_[next_].round = round_;
  {
    const std::lock_guard lock(mutex_);
    ++queued_;
  }
  changed_.notify_all();
  ++held_;
  next_ = (next_ + 1) % buckets_.size();
}

// The oldest bucket comes back: its sums become the gradients.
void GradientExchange::take_back() {
  Bucket& bucket = buckets_[oldest_];
  const auto begin = Clock::now();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bucket.reduced || error_; });
    if (error_) std::rethrow_exception(error_);
    bucket.reduced = false;
  }
  times_.exposed_ms += ms_since(begin);
  for (const BucketPiece& piece : bucket.pieces) {
    const float* const values = bucket.memory + piece.at;
    if (pipelined()) {
      rounds_->add(*lane_, piece, values, bucket.round);
    } else {
      lane_->copy_in(store_.grad(piece.parameter).as<float>() + piece.begin, values,
                     static_cast<std::size_t>(piece.count) * sizeof(float));
    }
    const bool complete = piece.last && bucket.round.last;
    if (complete && after_ != nullptr) after_->gradient_ready(piece.parameter);
  }
  lane_->wait();
  bucket.pieces.clear();
  bucket.used = 0;
  oldest_ = (oldest_ + 1) % buckets_.size();
  --held_;
}

void GradientExchange::finish() {
  if (held_ < buckets_.size() && buckets_[next_].used > 0) hand_over();
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
  }
  changed_.notify_all();
  while (round_.last && held_ > 0) take_back();
}

void GradientExchange::work() {
  comm::ask_for_short_turns();
  while (true) {
    Bucket* bucket = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || (queued_ > 0 && released_); });
      if (stopping_) return;
      bucket = &buckets_[reduce_next_];
    }
    const auto begin = Clock::now();
    std::exception_ptr error;
    communicator_.set_patient(true);
    try {
      reducer_->reduce({bucket->memory, static_cast<std::size_t>(bucket->used)}, bucket->pieces);
    } catch (...) {
      error = std::current_exception();
    }
    communicator_.set_patient(false);
    {
      const std::lock_guard lock(mutex_);
      times_.busy_ms += ms_since(begin);
      --queued_;
      reduce_next_ = (reduce_next_ + 1) % buckets_.size();
      bucket->reduced = !error;
      error_ = error;
    }
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace belay
