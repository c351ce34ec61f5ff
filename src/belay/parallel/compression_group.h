#pragma once
// Between whom compressed gradients pass: all ranks, or one of each domain, the head, for the
// others of its domain. Every rank makes every call.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "belay/comm/comm_config.h"
#include "belay/comm/communicator.h"

namespace belay {

class CompressionGroup {
 public:
  CompressionGroup(comm::Communicator& communicator, comm::CompressionLevel level);

  // Of those that exchange compressed data. One: there is nothing to compress for.
  [[nodiscard]] int size() const { return static_cast<int>(heads_.size()); }
  // Among them; -1 on a rank whose head does it.
  [[nodiscard]] int position() const { return position_; }
  // Whether heads stand for others.
  [[nodiscard]] bool has_inside() const { return inside_; }

  // In place: at a head the sum over its domain; what others hold then means nothing.
  void reduce_inside(float* values, std::int64_t count);
  // In place: what the head holds, in its domain.
  void spread_inside(float* values, std::int64_t count);
  // `block` bytes to each head. Both buffers hold as many blocks as there are heads, on all ranks.
  void all_to_all(const std::byte* input, std::byte* output, std::int64_t block);
  // `block` bytes of each head. Both buffers as before, though only the first block is read.
  void all_gather(const std::byte* input, std::byte* output, std::int64_t block);

 private:
  enum class Call : std::uint8_t { reduce, spread, exchange, gather };
  comm::Communicator::Kept& kept(Call call, std::int64_t count);
  [[nodiscard]] comm::Schedule schedule_of(Call call, std::int64_t count) const;

  comm::Communicator& communicator_;
  std::vector<std::vector<int>> domains_;
  std::vector<int> heads_;
  int position_ = -1;
  bool inside_ = false;
  std::vector<std::int64_t> bounds_;  // of all_gather
  std::map<std::pair<Call, std::int64_t>, std::shared_ptr<comm::Communicator::Kept>> calls_;
};

}  // namespace belay
