#pragma once
// The data-parallel side of a run: which micro-batches this rank takes, and how the gradients of
// all ranks come together.

#include <memory>

#include "belay/parallel/batch_share.h"
#include "belay/train/program.h"
#include "belay/train/rank_group.h"
#include "belay/train/run_config.h"

namespace belay {

class Replicas {
 public:
  // Error(usage) when the configuration does not suit the number of ranks. The configuration, and
  // the program connected, must outlive the replicas.
  Replicas(const RankGroup& ranks, const RunConfig& config);

  [[nodiscard]] BatchShare share() const;
  // What connect() will allocate, on device and host.
  [[nodiscard]] std::size_t bytes(const ParameterTable& table) const;
  // Every step of the program sums its gradients over the ranks from now on.
  void connect(Device& device, Program& program);

  void begin_step();
  // Of the step; zeros with one rank.
  [[nodiscard]] ExchangeTimes times() const;

 private:
  RankGroup ranks_;
  const RunConfig& config_;
  std::unique_ptr<GradientExchange> exchange_;  // with several ranks
  std::unique_ptr<StableSum> stable_;           // where order must not matter
};

}  // namespace belay
