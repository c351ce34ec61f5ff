#include "belay/parallel/weight_gather.h"

#include <algorithm>

namespace belay {

WeightGather::WeightGather(const ParameterStore& store, comm::ProgressThread& progress,
                           std::span<void* const> buffers, void* vectors, bool overlap)
    : store_(store),
      progress_(progress),
      overlap_(overlap),
      vectors_(static_cast<float*>(vectors)) {
  const ShardMap& map = store.shards();
  for (void* memory : buffers) buffers_.push_back({static_cast<std::byte*>(memory), 0, 0});
  if (store.stage() != ZeroStage::weights) return;
  const auto add = [&](int unit) {
    const ShardUnit& range = map.units()[static_cast<std::size_t>(unit)];
    for (int group = range.first_group; group < range.last_group; ++group) groups_.push_back(group);
  };
  const auto units = static_cast<int>(map.units().size());
  for (int unit = 0; unit < units; ++unit) add(unit);
  forward_groups_ = groups_.size();
  // The last layer's weights are still there when backward begins.
  for (int unit = units - 3; unit > 0; --unit) add(unit);
  resident_.resize(map.units().size());
}

void WeightGather::start(int number) {
  const ShardGroup& group = store_.shards().groups()[static_cast<std::size_t>(number)];
  Buffer& buffer = buffers_[(oldest_ + held_) % buffers_.size()];
  buffer.group = number;
  const auto own = static_cast<std::size_t>(group.own_begin - group.begin);
  std::byte* const place = buffer.memory + own * size_of(store_.compute());
  if (group.own_elements() > 0) {
    const Tensor block = store_.weight_block(group);
    lane_->copy_out(place, block.data, block.bytes());
    lane_->wait();
  }
  buffer.ticket = progress_.start_all_gather(place, buffer.memory, group.bounds, store_.compute());
  const auto ranks = static_cast<double>(group.bounds.size() - 1);
  sent_bytes_ += (ranks - 1) / ranks * static_cast<double>(group.elements()) *
                 static_cast<double>(size_of(store_.compute()));
  ++held_;
  if (!overlap_) progress_.wait(buffer.ticket);
}

void WeightGather::copy_in_oldest() {
  const Buffer& buffer = buffers_[oldest_];
  progress_.wait(buffer.ticket);
  const Tensor group =
      store_.weight_group(store_.shards().groups()[static_cast<std::size_t>(buffer.group)]);
  lane_->copy_in(group.data, buffer.memory, group.bytes());
  lane_->wait();
  oldest_ = (oldest_ + 1) % buffers_.size();
  --held_;
}

void WeightGather::send(Lane& lane, int group) {
  if (store_.stage() == ZeroStage::weights) return;
  lane_ = &lane;
  if (held_ == buffers_.size()) copy_in_oldest();
  start(group);
}

void WeightGather::finish(Lane& lane) {
  lane_ = &lane;
  while (held_ > 0) copy_in_oldest();
  if (vectors_ != nullptr) exchange_vectors(lane);
}

// Each element has one owner: added up as integers, the bits of the others are zeros.
void WeightGather::exchange_vectors(Lane& lane) {
  const Tensor vectors = store_.vectors();
  std::fill(vectors_, vectors_ + vectors.elements(), 0.0F);
  for (const ShardRun& run : store_.shards().runs()) {
    if (store_.table()[run.parameter].compute_copy) continue;
    const Tensor own = store_.owned(ParameterStore::State::masters, run);
    lane.copy_out(vectors_ + store_.vector_place(run), own.data, own.bytes());
  }
  lane.wait();
  progress_.wait(progress_.start_all_reduce(vectors_, vectors_, vectors.elements(), DType::i32,
                                            comm::ReduceOp::sum));
  lane.copy_in(vectors.data, vectors_, vectors.bytes());
  lane.wait();
}

void WeightGather::begin(Lane& lane, bool train) {
  BELAY_CHECK(store_.stage() == ZeroStage::weights && held_ == 0);
  lane_ = &lane;
  wanted_ = train ? groups_.size() : forward_groups_;
  next_start_ = next_use_ = 0;
  resident_.assign(resident_.size(), false);
  start_ahead();
}

void WeightGather::start_ahead() {
  while (overlap_ && held_ < buffers_.size() && next_start_ < wanted_) {
    start(groups_[next_start_++]);
  }
}

void WeightGather::use(int unit) {
  if (resident_[static_cast<std::size_t>(unit)]) return;
  for (std::size_t other = 0; other < resident_.size(); ++other) {
    if (store_.pool().shared(unit, static_cast<int>(other))) resident_[other] = false;
  }
  resident_[static_cast<std::size_t>(unit)] = true;
  const ShardUnit& range = store_.shards().units()[static_cast<std::size_t>(unit)];
  for (int group = range.first_group; group < range.last_group; ++group) {
    BELAY_CHECK(next_use_ < wanted_ && groups_[next_use_] == group);
    if (held_ == 0) start(groups_[next_start_++]);
    copy_in_oldest();
    ++next_use_;
    start_ahead();
  }
}

}  // namespace belay
