#include "belay/train/link_watch.h"

#include <fmt/format.h>

#include "belay/base/log.h"

namespace belay {
namespace {

using Kind = comm::LinkNews::Kind;

void say(std::int64_t step, const comm::LinkNews& news) {
  const auto [from, to] = news.link;
  switch (news.kind) {
    case Kind::slow:
      log::warn(
          "step {}: the link from rank {} to rank {} is slow: {:.3g} GB/s, {:.3g} GB/s is "
          "typical, by a test of its own; {}",
          step, from, to, news.gbps, news.typical,
          news.avoided ? fmt::format("calls go around it from now on (epoch {})", news.epoch)
                       : "calls go on using it");
      return;
    case Kind::healed:
      log::info(
          "step {}: the link from rank {} to rank {} is well again: {:.3g} GB/s, {:.3g} GB/s "
          "is typical{}",
          step, from, to, news.gbps, news.typical,
          news.avoided ? fmt::format("; it is used again (epoch {})", news.epoch) : "");
      return;
    case Kind::late:
      log::warn(
          "step {}: rank {} is late: it spends {:.0f}% of the step outside of collectives, the "
          "others {:.0f}%; its links are not to blame",
          step, from, 100 * news.share, 100 * news.others);
  }
}

LinkMetrics metrics_of(std::int64_t step, const comm::LinkNews& news) {
  LinkMetrics metrics;
  metrics.step = step;
  metrics.event = news.kind == Kind::slow     ? "slow_link"
                  : news.kind == Kind::healed ? "healed_link"
                                              : "late_rank";
  metrics.from = news.link.from;
  metrics.to = news.link.to;
  const bool late = news.kind == Kind::late;
  metrics.value = late ? news.share : news.gbps;
  metrics.typical = late ? news.others : news.typical;
  metrics.epoch = news.epoch;
  return metrics;
}

}  // namespace

LinkWatch::LinkWatch(const RankGroup& ranks, const comm::CommConfig& config) : ranks_(ranks) {
  if (ranks.size() == 1 || !config.watch_links) return;
  health_ = std::make_unique<comm::LinkHealth>(
      *ranks.communicator(), comm::LinkHealthOptions{config.slow_link, config.reform});
}

void LinkWatch::begin_step() {
  if (health_ != nullptr) health_->begin_step();
}

void LinkWatch::after_step(std::int64_t step, MetricHub& hub) {
  if (health_ == nullptr) return;
  for (const comm::LinkNews& news : health_->after_step()) {
    if (!ranks_.first()) continue;
    say(step, news);
    hub.link(metrics_of(step, news));
  }
}

}  // namespace belay
