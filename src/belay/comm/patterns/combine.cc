// Patterns made of patterns.

#include <algorithm>
#include <utility>

#include "belay/comm/patterns/emit.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {
namespace {

class CopyRange final : public Pattern {
 public:
  CopyRange(Range range, Buffer src, Buffer dst) : range_(range), src_(src), dst_(dst) {}

  [[nodiscard]] std::int64_t rounds() const override { return src_ == dst_ ? 0 : 1; }

  void append(int, std::int64_t, std::vector<Step>& steps) const override {
    Emit(steps).copy({src_, range_.begin}, {dst_, range_.begin}, range_.count());
  }

 private:
  Range range_;
  Buffer src_;
  Buffer dst_;
};

class PlaceOwnBlock final : public Pattern {
 public:
  explicit PlaceOwnBlock(Blocks blocks) : blocks_(std::move(blocks)) {}

  [[nodiscard]] std::int64_t rounds() const override { return 1; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    Emit(steps).copy({Buffer::input, 0}, {Buffer::output, blocks_.begin(rank)},
                     blocks_.count(rank));
  }

 private:
  Blocks blocks_;
};

class Sequence final : public Pattern {
 public:
  explicit Sequence(std::vector<PatternPtr> parts) : parts_(std::move(parts)) {
    for (const PatternPtr& part : parts_) ends_.push_back(rounds() + part->rounds());
  }

  [[nodiscard]] std::int64_t rounds() const override { return ends_.empty() ? 0 : ends_.back(); }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), round);
    const auto part = static_cast<std::size_t>(end - ends_.begin());
    parts_[part]->append(rank, round - (part == 0 ? 0 : ends_[part - 1]), steps);
  }

 private:
  std::vector<PatternPtr> parts_;
  std::vector<std::int64_t> ends_;
};

class Together final : public Pattern {
 public:
  explicit Together(std::vector<PatternPtr> parts) : parts_(std::move(parts)) {
    for (const PatternPtr& part : parts_) rounds_ = std::max(rounds_, part->rounds());
  }

  [[nodiscard]] std::int64_t rounds() const override { return rounds_; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    for (const PatternPtr& part : parts_) {
      if (round < part->rounds()) part->append(rank, round, steps);
    }
  }

 private:
  std::vector<PatternPtr> parts_;
  std::int64_t rounds_ = 0;
};

class OnGroups final : public Pattern {
 public:
  OnGroups(std::vector<Group> groups, int ranks)
      : groups_(std::move(groups)), memberships_(static_cast<std::size_t>(ranks)) {
    for (std::size_t index = 0; index < groups_.size(); ++index) {
      const Group& group = groups_[index];
      rounds_ = std::max(rounds_, group.pattern->rounds());
      for (std::size_t at = 0; at < group.members.size(); ++at) {
        memberships_[static_cast<std::size_t>(group.members[at])].push_back(
            {static_cast<int>(index), static_cast<int>(at)});
      }
    }
  }

  [[nodiscard]] std::int64_t rounds() const override { return rounds_; }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    for (const auto& [index, position] : memberships_[static_cast<std::size_t>(rank)]) {
      const Group& group = groups_[static_cast<std::size_t>(index)];
      if (round >= group.pattern->rounds()) continue;
      const std::size_t first = steps.size();
      group.pattern->append(position, round, steps);
      for (std::size_t at = first; at < steps.size(); ++at) {
        std::int32_t& peer = steps[at].peer;
        if (peer >= 0) peer = group.members[static_cast<std::size_t>(peer)];
      }
    }
  }

 private:
  struct Membership {
    int group = 0;
    int position = 0;
  };
  std::vector<Group> groups_;
  std::vector<std::vector<Membership>> memberships_;
  std::int64_t rounds_ = 0;
};

class OwnBlockOutput final : public Pattern {
 public:
  OwnBlockOutput(PatternPtr pattern, Blocks blocks)
      : pattern_(std::move(pattern)), blocks_(std::move(blocks)) {}

  [[nodiscard]] std::int64_t rounds() const override { return pattern_->rounds(); }

  void append(int rank, std::int64_t round, std::vector<Step>& steps) const override {
    const std::size_t first = steps.size();
    pattern_->append(rank, round, steps);
    for (std::size_t at = first; at < steps.size(); ++at) {
      Place& dst = steps[at].dst;
      if (dst.buffer == Buffer::output) dst.offset -= blocks_.begin(rank);
    }
  }

 private:
  PatternPtr pattern_;
  Blocks blocks_;
};

}  // namespace

PatternPtr copy_range(Range range, Buffer src, Buffer dst) {
  return std::make_unique<CopyRange>(range, src, dst);
}

PatternPtr place_own_block(Blocks blocks) {
  return std::make_unique<PlaceOwnBlock>(std::move(blocks));
}

PatternPtr sequence(std::vector<PatternPtr> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

PatternPtr together(std::vector<PatternPtr> parts) {
  return std::make_unique<Together>(std::move(parts));
}

PatternPtr on_groups(std::vector<Group> groups, int ranks) {
  return std::make_unique<OnGroups>(std::move(groups), ranks);
}

PatternPtr on_members(PatternPtr pattern, std::vector<int> members) {
  const int ranks = static_cast<int>(members.size());
  std::vector<Group> groups;
  groups.push_back({std::move(pattern), std::move(members)});
  return on_groups(std::move(groups), ranks);
}

PatternPtr own_block_output(PatternPtr pattern, Blocks blocks) {
  return std::make_unique<OwnBlockOutput>(std::move(pattern), std::move(blocks));
}

}  // namespace belay::comm
