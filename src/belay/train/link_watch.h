#pragma once
// Between the steps of a run of several ranks: slow links and late ranks, in log and metrics.

#include <cstdint>
#include <memory>

#include "belay/comm/comm_config.h"
#include "belay/comm/link_health.h"
#include "belay/observe/metrics.h"
#include "belay/train/rank_group.h"

namespace belay {

class LinkWatch {
 public:
  // Collective. Does nothing with one rank, or if the configuration says so.
  LinkWatch(const RankGroup& ranks, const comm::CommConfig& config);

  void begin_step();
  // Collective, when no call is under way.
  void after_step(std::int64_t step, MetricHub& hub);

 private:
  RankGroup ranks_;
  std::unique_ptr<comm::LinkHealth> health_;
};

}  // namespace belay
