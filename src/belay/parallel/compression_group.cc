#include "belay/parallel/compression_group.h"

#include <algorithm>
#include <numeric>

#include "belay/comm/hierarchy.h"

namespace belay {

using comm::Collective;
using comm::PatternPtr;

CompressionGroup::CompressionGroup(comm::Communicator& communicator, comm::CompressionLevel level)
    : communicator_(communicator) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<int> domain_of = communicator.layout().domain_of;
  if (level == comm::CompressionLevel::all) {
    domain_of.resize(ranks);
    std::iota(domain_of.begin(), domain_of.end(), 0);
  } else if (domain_of.empty()) {
    domain_of.resize(ranks);  // one domain
  }
  domains_ = comm::members_of_domains(domain_of);
  for (const std::vector<int>& members : domains_) heads_.push_back(members.front());
  inside_ = domains_.size() < ranks;
  const auto own = std::find(heads_.begin(), heads_.end(), communicator.rank());
  if (own != heads_.end()) position_ = static_cast<int>(own - heads_.begin());
  bounds_.resize(heads_.size() + 1);
}

comm::Schedule CompressionGroup::schedule_of(Call call, std::int64_t count) const {
  const int ranks = communicator_.size();
  const comm::Range range{0, count};
  comm::Schedule schedule;
  schedule.ranks = ranks;
  schedule.blocks = comm::Blocks::even(0, count, ranks);
  std::vector<comm::Group> groups;
  if (call == Call::reduce || call == Call::spread) {
    schedule.name = call == Call::reduce ? "reduce inside" : "spread inside";
    for (const std::vector<int>& members : domains_) {
      const int size = static_cast<int>(members.size());
      groups.push_back({call == Call::reduce ? comm::leader_reduce(size, range, {})
                                             : comm::leader_broadcast(size, range),
                        members});
    }
  } else {
    comm::Blocks blocks;
    for (int head = 1; head <= size(); ++head) blocks.bounds.push_back(count * head);
    schedule.blocks = blocks;
    if (call == Call::exchange) {
      schedule.name = "exchange between heads";
      schedule.collective = Collective::all_to_all;
      groups.push_back({comm::direct_all_to_all(blocks), heads_});
    } else {
      schedule.name = "gather between heads";
      schedule.collective = Collective::all_gather;
      std::vector<PatternPtr> parts;
      parts.push_back(comm::place_own_block(blocks));
      parts.push_back(comm::direct_all_gather(blocks));
      groups.push_back({comm::sequence(std::move(parts)), heads_});
    }
  }
  schedule.lanes.push_back(comm::on_groups(std::move(groups), ranks));
  return schedule;
}

comm::Communicator::Kept& CompressionGroup::kept(Call call, std::int64_t count) {
  auto& entry = calls_[{call, count}];
  const bool moves_bytes = call == Call::exchange || call == Call::gather;
  if (entry == nullptr) {
    entry =
        communicator_.keep_schedule(schedule_of(call, count), moves_bytes ? DType::u8 : DType::f32);
  }
  return *entry;
}

void CompressionGroup::reduce_inside(float* values, std::int64_t count) {
  if (!inside_ || count == 0) return;
  communicator_.run_kept(kept(Call::reduce, count), values, values, comm::ReduceOp::sum);
}

void CompressionGroup::spread_inside(float* values, std::int64_t count) {
  if (!inside_ || count == 0) return;
  communicator_.run_kept(kept(Call::spread, count), values, values, comm::ReduceOp::sum);
}

void CompressionGroup::all_to_all(const std::byte* input, std::byte* output, std::int64_t block) {
  if (!inside_) return communicator_.all_to_all(input, output, block, DType::u8);
  communicator_.run_kept(kept(Call::exchange, block), input, output, comm::ReduceOp::sum);
}

void CompressionGroup::all_gather(const std::byte* input, std::byte* output, std::int64_t block) {
  if (inside_) {
    communicator_.run_kept(kept(Call::gather, block), input, output, comm::ReduceOp::sum);
    return;
  }
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    bounds_[i] = static_cast<std::int64_t>(i) * block;
  }
  communicator_.all_gather(input, output, bounds_, DType::u8);
}

}  // namespace belay
