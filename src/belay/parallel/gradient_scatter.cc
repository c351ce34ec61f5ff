#include "belay/parallel/gradient_scatter.h"

#include <algorithm>

namespace belay {
namespace {

bool adds(const ShardMap& map) {
  return map.options().stage >= ZeroStage::gradients;
}

}  // namespace

std::size_t GradientScatter::bytes(const ShardMap& map) {
  return adds(map) ? static_cast<std::size_t>(map.largest_block()) * sizeof(float) : 0;
}

GradientScatter::GradientScatter(Device& device, const ParameterStore& store,
                                 comm::ProgressThread& progress, std::span<void* const> buffers,
                                 bool overlap, BucketReducer* reducer)
    : store_(store),
      progress_(progress),
      overlap_(overlap),
      reducer_(reducer),
      filled_(store.shards().groups().size()),
      pending_(buffers.size()) {
  const ShardMap& map = store.shards();
  const ParameterTable& table = store.table();
  for (int index = 0; index < table.size(); ++index) {
    const auto [first, last] = map.groups_of(table, index);
    const std::int64_t end = table[index].offset + table[index].elements();
    for (int number = first; number < last; ++number) {
      const ShardGroup& group = map.groups()[static_cast<std::size_t>(number)];
      filled_[static_cast<std::size_t>(number)] +=
          std::min(end, group.end) - std::max(table[index].offset, group.begin);
    }
  }
  buffers_.resize(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    Buffer& buffer = buffers_[i];
    buffer.memory = static_cast<float*>(buffers[i]);
    if (reducer == nullptr) continue;
    buffer.pieces.reserve(static_cast<std::size_t>(table.size()));
    buffer.reduction = [this, &buffer](comm::Communicator&) {
      const ShardGroup& group = store_.shards().groups()[static_cast<std::size_t>(buffer.group)];
      reducer_->reduce({buffer.memory, static_cast<std::size_t>(group.elements())}, buffer.pieces);
    };
  }
  if (adds(map)) {
    staging_ = device.allocate(bytes(map), "sums of gradients");
  }
}

void GradientScatter::begin(Lane& lane, bool add, const Ready* ready) {
  BELAY_CHECK(!add || staging_ != nullptr);
  lane_ = &lane;
  add_ = add;
  ready_ = ready;
}

void GradientScatter::gradient_ready(int parameter) {
  pack(parameter, false);
}

void GradientScatter::contribute_nothing(int parameter) {
  pack(parameter, true);
}

void GradientScatter::pack(int parameter, bool nothing) {
  const ShardMap& map = store_.shards();
  const Parameter& entry = store_.table()[parameter];
  const Tensor gradient = store_.grad(parameter).reshaped({entry.elements()});
  const auto [first, last] = map.groups_of(store_.table(), parameter);
  for (int number = first; number < last; ++number) {
    const ShardGroup& group = map.groups()[static_cast<std::size_t>(number)];
    const std::int64_t begin = std::max(entry.offset, group.begin);
    const std::int64_t end = std::min(entry.offset + entry.elements(), group.end);
    Buffer& buffer = buffer_of(number);
    float* const place = buffer.memory + (begin - group.begin);
    if (nothing) {
      std::fill(place, place + (end - begin), 0.0F);
    } else {
      const Tensor part = gradient.rows(begin - entry.offset, end - entry.offset);
      lane_->copy_out(place, part.data, part.bytes());
      launch(*lane_, FillArgs{part, 0.0});
    }
    // The alignment gap behind the parameter.
    const std::int64_t padded = std::min(group.end, (end + 31) / 32 * 32);
    std::fill(place + (end - begin), buffer.memory + (padded - group.begin), 0.0F);
    if (reducer_ != nullptr) {
      buffer.pieces.push_back({parameter, begin - entry.offset, end - begin, begin - group.begin,
                               end == entry.offset + entry.elements()});
    }
    buffer.missing -= end - begin;
    if (buffer.missing == 0) hand_over(buffer);
  }
}

GradientScatter::Buffer& GradientScatter::buffer_of(int group) {
  for (Buffer& buffer : buffers_) {
    if (buffer.group == group && buffer.missing > 0) return buffer;
  }
  auto free = std::find_if(buffers_.begin(), buffers_.end(),
                           [](const Buffer& buffer) { return buffer.group < 0; });
  if (free == buffers_.end()) {
    BELAY_CHECK(held_ > 0);
    free = buffers_.begin() + static_cast<std::ptrdiff_t>(pending_[oldest_]);
    take_back();
  }
  free->group = group;
  free->add = add_;
  free->ready = ready_;
  free->missing = filled_[static_cast<std::size_t>(group)];
  return *free;
}

void GradientScatter::hand_over(Buffer& buffer) {
  const ShardGroup& group = store_.shards().groups()[static_cast<std::size_t>(buffer.group)];
  lane_->wait();
  if (reducer_ != nullptr) {
    buffer.ticket = progress_.start(buffer.reduction);
  } else {
    buffer.ticket = progress_.start_reduce_scatter(buffer.memory,
                                                   buffer.memory + (group.own_begin - group.begin),
                                                   group.bounds, DType::f32, comm::ReduceOp::sum);
    sent_bytes_ += 0.5 * sum_traffic(group.elements(), static_cast<int>(group.bounds.size()) - 1);
  }
  pending_[(oldest_ + held_) % pending_.size()] =
      static_cast<std::size_t>(&buffer - buffers_.data());
  ++held_;
  if (!overlap_) take_back();
}

void GradientScatter::take_back() {
  Buffer& buffer = buffers_[pending_[oldest_]];
  const ShardGroup& group = store_.shards().groups()[static_cast<std::size_t>(buffer.group)];
  progress_.wait(buffer.ticket);
  if (group.own_elements() > 0) {
    const Tensor target = store_.grad_block(group);
    const float* const sums = buffer.memory + (group.own_begin - group.begin);
    if (buffer.add) {
      const Tensor staged{staging_->address(), DType::f32, target.shape};
      lane_->copy_in(staged.data, sums, staged.bytes());
      launch(*lane_, AddArgs{staged, target, target});
    } else {
      lane_->copy_in(target.data, sums, target.bytes());
    }
    if (buffer.ready != nullptr) (*buffer.ready)(store_.shards().runs_of(group));
  }
  lane_->wait();
  buffer.group = -1;
  buffer.pieces.clear();
  oldest_ = (oldest_ + 1) % pending_.size();
  --held_;
}

void GradientScatter::finish(bool drain) {
  for (const Buffer& buffer : buffers_) BELAY_CHECK(buffer.group < 0 || buffer.missing == 0);
  while (drain && held_ > 0) take_back();
}

}  // namespace belay
