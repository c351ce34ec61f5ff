#pragma once
// Which rank keeps which elements of the model's state when it is sharded over the ranks of a
// data-parallel run (Rajbhandari et al., "ZeRO", SC 2020). Data, computed from the parameter table
// and the number of ranks alone.
//
// Three cuts of the flat state (parameter_table.h), each within the next:
//  - a piece: at most piece_elements() of one parameter. The sum of squares of a gradient is taken
//    piece by piece, and added in their order, so that its bits do not depend on who has which.
//    Pieces depend on the table only.
//  - a group: consecutive pieces of one unit, that ranks exchange at once. Within each group the
//    ranks own one block each, one after the other, whose ends are ends of pieces.
//  - a unit: the parameters that are used together: those in front of the layers, of each layer,
//  and
//    behind the layers.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "belay/model/parameter_table.h"

namespace belay {

// How much is sharded. Each stage includes the ones before.
enum class ZeroStage : std::uint8_t { none, moments, gradients, weights };

struct ShardOptions {
  ZeroStage stage = ZeroStage::none;
  int rank = 0;
  int ranks = 1;
  std::int64_t group_elements = 0;  // wanted at most; 0: any number
};

struct ShardGroup {
  int unit = 0;
  std::int64_t begin = 0;  // element of the flat state
  std::int64_t end = 0;
  std::vector<std::int64_t> bounds;  // from `begin`: rank r owns [bounds[r], bounds[r + 1])
  std::int64_t own_begin = 0;        // this rank's block, in the flat state
  std::int64_t own_end = 0;
  std::int64_t shard = 0;  // where that begins in this rank's shard
  int first_run = 0;       // this rank's runs [first_run, last_run) of ShardMap::runs()
  int last_run = 0;

  [[nodiscard]] std::int64_t elements() const { return end - begin; }
  [[nodiscard]] std::int64_t own_elements() const { return own_end - own_begin; }
};

// Elements of one parameter that this rank owns, whole pieces.
struct ShardRun {
  int parameter = 0;
  std::int64_t begin = 0;  // element of the parameter
  std::int64_t count = 0;
  std::int64_t flat = 0;   // element of the flat state
  std::int64_t shard = 0;  // element of this rank's shard
  std::int64_t piece = 0;  // number of its first piece
};

struct ShardUnit {
  int layer = -1;
  std::int64_t begin = 0;  // element of the flat state
  std::int64_t end = 0;
  int first_group = 0;  // groups [first_group, last_group)
  int last_group = 0;
};

class ShardMap {
 public:
  ShardMap(const ParameterTable& table, const ShardOptions& options);

  [[nodiscard]] const ShardOptions& options() const { return options_; }
  // All in the order of the flat state. Alignment gaps belong to the parameter before them.
  [[nodiscard]] const std::vector<ShardUnit>& units() const { return units_; }
  [[nodiscard]] const std::vector<ShardGroup>& groups() const { return groups_; }
  [[nodiscard]] const std::vector<ShardRun>& runs() const { return runs_; }
  [[nodiscard]] std::span<const ShardRun> runs_of(const ShardGroup& group) const;
  // This rank's, one for each group that the parameter reaches into.
  [[nodiscard]] std::span<const ShardRun> runs_of_parameter(int parameter) const;
  // Groups [first, second) that hold elements of the parameter.
  [[nodiscard]] std::pair<int, int> groups_of(const ParameterTable& table, int parameter) const;

  // Elements of this rank's shard, gaps included; with one rank it is the flat state.
  [[nodiscard]] std::int64_t shard_elements() const { return shard_elements_; }
  [[nodiscard]] std::int64_t largest_group() const;
  [[nodiscard]] std::int64_t largest_block() const;  // of any rank

  [[nodiscard]] std::int64_t piece_elements() const { return piece_elements_; }
  [[nodiscard]] std::int64_t piece_count() const { return first_piece_.back(); }
  // The parameter's pieces are [first_piece(i), first_piece(i + 1)).
  [[nodiscard]] std::int64_t first_piece(int parameter) const {
    return first_piece_[static_cast<std::size_t>(parameter)];
  }

 private:
  void cut_unit(const ParameterTable& table, int first, int last, std::int64_t end);
  void add_group(const ParameterTable& table, int unit, std::span<const std::int64_t> ends);
  void add_runs(const ParameterTable& table, ShardGroup& group);

  ShardOptions options_;
  std::int64_t piece_elements_;
  std::int64_t shard_elements_ = 0;
  std::vector<std::int64_t> first_piece_;
  std::vector<ShardUnit> units_;
  std::vector<ShardGroup> groups_;
  std::vector<ShardRun> runs_;
};

}  // namespace belay
