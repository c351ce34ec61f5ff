#include "belay/parallel/sharded_state.h"

#include <algorithm>
#include <utility>

namespace belay {

namespace {

struct Sizes {
  std::size_t gradients = 0;  // buffers
  std::size_t gradient_bytes = 0;
  std::size_t weights = 0;
  std::size_t weight_bytes = 0;
};

// Sharded weights are gathered while gradients are scattered, others before or after. Half as many
// buffers are enough for weights: by the default sizes the next layer's.
Sizes sizes_of(const ShardMap& map, DType compute, const ShardExchangeOptions& options) {
  const std::size_t groups = map.groups().size();
  const auto wanted = static_cast<std::size_t>(std::max(1, options.buffers));
  const auto largest = static_cast<std::size_t>(map.largest_group());
  Sizes sizes;
  sizes.gradients = std::min(groups, std::max(wanted, GradientScatter::kLeastBuffers));
  sizes.gradient_bytes = largest * sizeof(float);
  if (map.options().stage == ZeroStage::weights) {
    sizes.weights = std::min(groups, (wanted + 1) / 2);
  }
  sizes.weight_bytes = largest * size_of(compute);
  return sizes;
}

void* first_or_null(std::span<void* const> buffers) {
  return buffers.empty() ? nullptr : buffers.front();
}

}  // namespace

ShardedState::ShardedState(Device& device, const ParameterStore& store,
                           comm::Communicator& communicator, const ShardExchangeOptions& options,
                           std::unique_ptr<BucketReducer> reducer)
    : store_(store),
      communicator_(communicator),
      reducer_(std::move(reducer)),
      progress_(std::make_unique<comm::ProgressThread>(communicator)),
      gradients_(communicator, sizes_of(store.shards(), store.compute(), options).gradients,
                 sizes_of(store.shards(), store.compute(), options).gradient_bytes),
      weights_(communicator, sizes_of(store.shards(), store.compute(), options).weights,
               sizes_of(store.shards(), store.compute(), options).weight_bytes),
      vectors_(communicator, store.vectors().empty() ? 0 : 1, store.vectors().bytes()),
      scatter_(device, store, *progress_, gradients_.all(), options.overlap, reducer_.get()),
      gather_(store, *progress_, weights_.all().empty() ? gradients_.all() : weights_.all(),
              first_or_null(vectors_.all()), options.overlap) {
  events_.reserve(static_cast<std::size_t>(store.table().size()) +
                  2 * store.shards().units().size());
}

// What is under way uses the buffers: it must end before they go.
ShardedState::~ShardedState() {
  progress_.reset();
}

std::size_t ShardedState::bytes(const ParameterTable& table, const StoreOptions& store,
                                const ShardExchangeOptions& options) {
  const ShardMap map(table, store.shard);
  const Sizes sizes = sizes_of(map, store.compute, options);
  return sizes.gradients * sizes.gradient_bytes + sizes.weights * sizes.weight_bytes +
         ParameterStore::bytes(table, store).vectors + GradientScatter::bytes(map);
}

void ShardedState::begin_weights(Lane& lane, bool train) {
  recording_ = train && !recorded_;
  if (recording_) events_.clear();
  gather_.begin(lane, train);
}

void ShardedState::use(int unit) {
  if (recording_) events_.push_back({true, unit});
  gather_.use(unit);
}

void ShardedState::begin_gradients(Lane& lane, bool add, const GradientScatter::Ready* ready) {
  if (!gathers_weights() && !recorded_) {
    recording_ = true;
    events_.clear();
  }
  scatter_.begin(lane, add, ready);
}

void ShardedState::gradient_ready(int parameter) {
  if (recording_) events_.push_back({false, parameter});
  scatter_.gradient_ready(parameter);
}

void ShardedState::finish_gradients(bool drain) {
  scatter_.finish(drain);
  recorded_ = recorded_ || recording_;
  recording_ = false;
}

void ShardedState::join_training(Lane& lane, bool add, const GradientScatter::Ready* ready) {
  BELAY_CHECK(recorded_);
  if (gathers_weights()) gather_.begin(lane, true);
  scatter_.begin(lane, add, ready);
  for (const Event& event : events_) {
    if (event.use) {
      gather_.use(event.index);
    } else {
      scatter_.contribute_nothing(event.index);
    }
  }
  scatter_.finish(true);
}

void ShardedState::join_forward(Lane& lane) {
  if (!gathers_weights()) return;
  gather_.begin(lane, false);
  const auto units = static_cast<int>(store_.shards().units().size());
  for (int unit = 0; unit < units; ++unit) gather_.use(unit);
}

void ShardedState::share_weights(Lane& lane) {
  const auto groups = static_cast<int>(store_.shards().groups().size());
  for (int group = 0; group < groups; ++group) gather_.send(lane, group);
  gather_.finish(lane);
}

void ShardedState::sum(std::span<double> values) {
  communicator_.all_reduce(values.data(), values.data(), std::ssize(values), DType::f64,
                           comm::ReduceOp::sum);
}

void ShardedState::collect(Lane& lane, ParameterStore::State state, int parameter,
                           std::span<float> dst) {
  const bool first = communicator_.rank() == 0;
  const Parameter& entry = store_.table()[parameter];
  if (store_.is_whole(state, parameter)) {
    if (first) ParameterStore::read(lane, store_.whole(state, parameter), dst);
    return;
  }
  std::vector<float> part;
  const auto [begin_group, end_group] = store_.shards().groups_of(store_.table(), parameter);
  for (int number = begin_group; number < end_group; ++number) {
    const ShardGroup& group = store_.shards().groups()[static_cast<std::size_t>(number)];
    for (int owner = 0; owner < communicator_.size(); ++owner) {
      const auto rank = static_cast<std::size_t>(owner);
      const std::int64_t begin = std::max(entry.offset, group.begin + group.bounds[rank]);
      const std::int64_t end =
          std::min(entry.offset + entry.elements(), group.begin + group.bounds[rank + 1]);
      if (begin >= end) continue;
      part.resize(static_cast<std::size_t>(end - begin));
      if (communicator_.rank() == owner) {
        for (const ShardRun& run : store_.shards().runs_of(group)) {
          if (run.parameter != parameter) continue;
          ParameterStore::read(lane, store_.owned(state, run), part);
        }
      }
      if (owner > 0) {
        communicator_.broadcast(part.data(), part.data(), end - begin, DType::f32, owner);
      }
      if (first) std::copy(part.begin(), part.end(), dst.begin() + (begin - entry.offset));
    }
  }
}

ShardedState::Times ShardedState::times() {
  const comm::ProgressThread::Times times = progress_->times();
  return {1e3 * times.busy_s, 1e3 * times.waited_s};
}

void ShardedState::begin_step() {
  sent_before_ = scatter_.sent_bytes() + gather_.sent_bytes();
}

BucketTraffic ShardedState::traffic() const {
  const double sent = scatter_.sent_bytes() + gather_.sent_bytes() - sent_before_;
  BucketTraffic traffic{sent, sent};
  if (reducer_ != nullptr) {
    // Dense gradients would have been scattered only.
    traffic.dense_bytes += 0.5 * reducer_->traffic().dense_bytes;
    traffic.sent_bytes += reducer_->traffic().sent_bytes;
  }
  return traffic;
}

}  // namespace belay
