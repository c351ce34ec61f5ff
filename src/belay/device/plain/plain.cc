#include "belay/device/plain/plain.h"

#include <array>

#include "belay/device/plain/workbench.h"

namespace belay::plain {
namespace {

struct Entry {
  std::string_view op;
  Composition (*compose)(const Bench&, const OpCall&);
};

template <class Args>
constexpr Entry entry_of() {
  return {Args::kName,
          [](const Bench& bench, const OpCall& call) { return compose(bench, call.as<Args>()); }};
}

constexpr std::array kEntries{
    entry_of<NormForwardArgs>(),       entry_of<NormBackwardArgs>(),
    entry_of<ActivationForwardArgs>(), entry_of<ActivationBackwardArgs>(),
    entry_of<CrossEntropyArgs>(),      entry_of<AdamwArgs>(),
    entry_of<EmbeddingForwardArgs>(),  entry_of<AttentionForwardArgs>(),
    entry_of<AttentionBackwardArgs>(),
};

}  // namespace

// One gather per table, then the sum.
Composition compose(const Bench& bench, const EmbeddingForwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const bool positions = !args.positions_table.empty();
  const Tensor rows = positions ? work.scratch(args.dst.dtype, args.dst.shape) : Tensor{};
  composition.run = [=, lane = &bench.lane] {
    launch(*lane, EmbeddingForwardArgs{args.tokens, args.table, {}, {}, args.dst});
    if (positions) {
      launch(*lane, EmbeddingForwardArgs{args.positions, args.positions_table, {}, {}, rows});
      launch(*lane, AddArgs{args.dst, rows, args.dst});
    }
    lane->wait();
  };
  return composition;
}

Composition compose(const Bench& bench, const OpCall& call) {
  for (const Entry& entry : kEntries) {
    if (entry.op == call.op) return entry.compose(bench, call);
  }
  return {};
}

std::vector<std::string_view> composed_ops() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) names.push_back(entry.op);
  return names;
}

}  // namespace belay::plain
