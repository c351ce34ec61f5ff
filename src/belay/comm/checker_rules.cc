#include "belay/comm/checker_rules.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

namespace belay::comm {
namespace {

class Results {
 public:
  Results(const Schedule& schedule, const std::vector<SymbolicMemory>& memories)
      : schedule_(schedule), memories_(memories) {}

  std::string problem(bool order_stable) {
    const std::int64_t count = schedule_.count();
    std::optional<std::uint64_t> stable;
    if (order_stable) stable = stable_tree(0, schedule_.ranks);
    for (int rank = 0; rank < schedule_.ranks && problem_.empty(); ++rank) {
      switch (schedule_.collective) {
        case Collective::all_reduce:
          // Without an order that is asked for: as on rank 0.
          for (std::int64_t i = 0; i < count; ++i) {
            expect_sum(rank, i, i, stable.value_or(output(0, i).tree));
          }
          break;
        case Collective::reduce:
          if (rank != schedule_.root) break;
          for (std::int64_t i = 0; i < count; ++i) {
            expect_sum(rank, i, i, stable.value_or(output(rank, i).tree));
          }
          break;
        case Collective::reduce_scatter:
          for (std::int64_t i = 0; i < schedule_.blocks.count(rank); ++i) {
            expect_sum(rank, i, schedule_.blocks.begin(rank) + i,
                       stable.value_or(output(rank, i).tree));
          }
          break;
        case Collective::broadcast:
          for (std::int64_t i = 0; i < count; ++i) expect_copy(rank, i, i, schedule_.root);
          break;
        case Collective::all_gather:
        case Collective::all_to_all:
          expect_blocks(rank);
          break;
        case Collective::barrier:
          break;
      }
    }
    return problem_;
  }

 private:
  [[nodiscard]] const Symbol& output(int rank, std::int64_t i) const {
    const SymbolicMemory& memory = memories_[static_cast<std::size_t>(rank)];
    return memory.at(memory.address({Buffer::output, i}));
  }

  void expect_sum(int rank, std::int64_t i, std::int64_t element, std::uint64_t tree) {
    const Symbol& symbol = output(rank, i);
    if (symbol.element != element || symbol.contributions() != schedule_.ranks) {
      refuse(rank, i);
    } else if (symbol.tree != tree) {
      problem_ = fmt::format("rank {}: output {} was added up in another order", rank, i);
    }
  }

  void expect_copy(int rank, std::int64_t i, std::int64_t element, int source) {
    const Symbol& symbol = output(rank, i);
    const bool right = symbol.element == element && symbol.contributions() == 1 &&
                       symbol.tree == Symbol::leaf(source, 0).tree;
    if (!right) refuse(rank, i);
  }

  void expect_blocks(int rank) {
    const Blocks& blocks = schedule_.blocks;
    const bool gather = schedule_.collective == Collective::all_gather;
    for (int source = 0; source < schedule_.ranks; ++source) {
      for (std::int64_t i = 0; i < blocks.count(source); ++i) {
        const std::int64_t at = blocks.begin(source) + i;
        expect_copy(rank, at, gather ? at : blocks.begin(rank) + i, source);
      }
    }
  }

  void refuse(int rank, std::int64_t i) {
    const Symbol& symbol = output(rank, i);
    problem_ = fmt::format("rank {}: output {} holds {} contributions to element {}", rank, i,
                           symbol.contributions(), symbol.element);
  }

  const Schedule& schedule_;
  const std::vector<SymbolicMemory>& memories_;
  std::string problem_;
};

}  // namespace

std::string problem_of_step(const Step& step, const SymbolicMemory& memory, int rank, int ranks) {
  const bool message = step.kind != StepKind::copy && step.kind != StepKind::combine;
  if (message && (step.peer < 0 || step.peer >= ranks || step.peer == rank)) {
    return fmt::format("peer {} is not another rank", step.peer);
  }
  const bool reads_base = step.kind == StepKind::receive_reduce || step.kind == StepKind::combine;
  const bool writes = !sends(step.kind) && !is_held(step.kind);
  const bool reads_src = sends(step.kind) || step.kind == StepKind::copy;
  if ((reads_src && !memory.contains(step.src, step.count)) ||
      (reads_base && !memory.contains(step.base, step.count)) ||
      (writes && !memory.contains(step.dst, step.count))) {
    return "outside of a buffer";
  }
  if (writes && step.dst.buffer == Buffer::input) return "writes to the input";
  const bool lends = step.kind == StepKind::lend || step.kind == StepKind::fill;
  if (lends && step.src.buffer != Buffer::output) return "lends what is not output";
  const Place read = reads_base ? step.base : step.src;
  if (writes && (reads_base || reads_src)) {
    const std::int64_t distance = memory.address(read) - memory.address(step.dst);
    if (distance != 0 && std::abs(distance) < step.count) return "overlaps itself";
  }
  const bool reduces_message =
      step.kind == StepKind::receive_reduce || step.kind == StepKind::gather;
  if ((reads_base && step.base.buffer == Buffer::output) ||
      (reduces_message && step.src.buffer == Buffer::output)) {
    return "reduces what is complete";
  }
  if (step.kind == StepKind::receive && is_wide(step.src.buffer) != is_wide(step.dst.buffer)) {
    return "stores a message as another element type";
  }
  return {};
}

std::string problem_of_results(const Schedule& schedule,
                               const std::vector<SymbolicMemory>& memories, bool order_stable) {
  return Results(schedule, memories).problem(order_stable);
}

}  // namespace belay::comm
