#include "belay/comm/link_health.h"

#include <algorithm>
#include <utility>

#include "belay/comm/ticks.h"

namespace belay::comm {
namespace {

// Less says nothing about a link's bandwidth.
constexpr double kLeastBytes = 16 << 10;
// What a slow link must cost a step to be worth a test.
constexpr double kLeastShare = 0.05;
constexpr double kLeastNs = 1e6;
// How much more of the step than the others a late rank is outside of calls.
constexpr double kLateShare = 0.2;
// A test takes a typical link about so long, if the message is neither too small to tell nor larger
// than needed.
constexpr double kTestNs = 5e6;
constexpr std::size_t kLeastTestBytes = std::size_t{8} << 10;
constexpr std::size_t kTestBytes = std::size_t{256} << 10;
constexpr int kTestMessages = 2;

// Of sorted values, one of which is left out.
double median_without(const std::vector<double>& sorted, double value) {
  const auto own = std::lower_bound(sorted.begin(), sorted.end(), value);
  const bool there = own != sorted.end() && *own == value;
  const std::size_t rest = sorted.size() - (there ? 1 : 0);
  if (rest == 0) return 0;
  const std::size_t middle = rest / 2;
  const bool behind = there && static_cast<std::size_t>(own - sorted.begin()) <= middle;
  return sorted[behind ? middle + 1 : middle];
}

template <class Body>
void for_each_link(int ranks, Body&& body) {
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from != to) body(Link{from, to});
    }
  }
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

LinkTable::LinkTable(int ranks, std::vector<int> domain_of)
    : ranks_(ranks),
      domain_of_(std::move(domain_of)),
      values_(static_cast<std::size_t>(ranks * (2 * ranks + 2))) {
  for (int rank = 0; rank <= ranks; ++rank) {
    bounds_.push_back(static_cast<std::int64_t>(rank) * (2 * ranks + 2));
  }
  for (std::vector<double>& rates : rates_) {
    rates.reserve(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  }
  outside_.reserve(static_cast<std::size_t>(ranks));
}

std::span<double> LinkTable::row(int rank) {
  const auto width = static_cast<std::size_t>(2 * ranks_ + 2);
  return std::span(values_).subspan(static_cast<std::size_t>(rank) * width, width);
}

void LinkTable::fill(std::span<double> row, const LinkMeter& meter, double outside, double whole) {
  const std::size_t ranks = meter.carried().size();
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    row[peer] = meter.carried()[peer].bytes;
    row[ranks + peer] = meter.carried()[peer].ns;
  }
  row[2 * ranks] = outside;
  row[2 * ranks + 1] = whole;
}

bool LinkTable::crosses(Link link) const {
  if (domain_of_.empty()) return false;
  return domain_of_[static_cast<std::size_t>(link.from)] !=
         domain_of_[static_cast<std::size_t>(link.to)];
}

double LinkTable::outside(int rank) const {
  return at(rank, 2 * ranks_) / std::max(whole_ns(rank), 1.0);
}

double LinkTable::rate(Link link) const {
  return bytes(link) < kLeastBytes || ns(link) <= 0 ? 0 : bytes(link) / ns(link);
}

void LinkTable::sort() {
  for (std::vector<double>& rates : rates_) rates.clear();
  outside_.clear();
  for_each_link(ranks_, [&](Link link) {
    if (const double own = rate(link); own > 0) rates_[crosses(link) ? 1 : 0].push_back(own);
  });
  for (int rank = 0; rank < ranks_; ++rank) outside_.push_back(outside(rank));
  for (std::vector<double>& rates : rates_) std::sort(rates.begin(), rates.end());
  std::sort(outside_.begin(), outside_.end());
}

double LinkTable::median_rate_without(Link link) const {
  return median_without(rates_[crosses(link) ? 1 : 0], rate(link));
}

double LinkTable::median_outside_without(int rank) const {
  return median_without(outside_, outside(rank));
}

double healed_below(double factor) {
  return std::max(1 + (factor - 1) / 2, 0.75 * factor);
}

std::vector<int> late_ranks(const LinkTable& table, double factor) {
  std::vector<int> late;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const double middle = table.median_outside_without(rank);
    const double own = table.outside(rank);
    if (own > factor * middle && own > middle + kLateShare) late.push_back(rank);
  }
  return late;
}

std::vector<Link> suspected_links(const LinkTable& table, double factor) {
  const std::vector<int> late = late_ranks(table, factor);
  std::vector<Link> found;
  for_each_link(table.ranks(), [&](Link link) {
    const double rate = table.rate(link);
    if (rate == 0 || contains(late, link.from)) return;
    const double middle = table.median_rate_without(link);
    const double lost = table.ns(link) - table.bytes(link) / std::max(middle, 1e-12);
    const bool matters = lost > std::max(kLeastNs, kLeastShare * table.whole_ns(link.to));
    if (rate * factor < middle && matters) found.push_back(link);
  });
  std::stable_sort(found.begin(), found.end(),
                   [&](Link a, Link b) { return table.rate(a) < table.rate(b); });
  return found;
}

std::optional<Link> typical_link(const LinkTable& table, Link other) {
  std::vector<std::pair<double, Link>> links;
  for (const bool apart : {true, false}) {
    for_each_link(table.ranks(), [&](Link link) {
      const bool shares = link.from == other.from || link.from == other.to ||
                          link.to == other.from || link.to == other.to;
      const double rate = table.rate(link);
      if (link == other || (apart && shares) || rate == 0) return;
      if (table.crosses(link) == table.crosses(other)) links.emplace_back(rate, link);
    });
    if (!links.empty()) break;
  }
  if (links.empty()) return std::nullopt;
  std::stable_sort(links.begin(), links.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return links[links.size() / 2].second;
}

LinkHealth::LinkHealth(Communicator& communicator, const LinkHealthOptions& options)
    : communicator_(communicator),
      options_(options),
      probe_(communicator, kTestBytes),
      table_(communicator.size(), communicator.layout().domain_of),
      row_(static_cast<std::size_t>(2 * communicator.size() + 2)),
      to_(static_cast<std::size_t>(communicator.size())) {
  begin_step();
}

void LinkHealth::begin_step() {
  communicator_.meter().reset();
  begin_outside_ = communicator_.flight().outside_ticks();
  begin_ticks_ = ticks();
  begin_ns_ = clock_ns(CLOCK_MONOTONIC);
}

std::span<const LinkNews> LinkHealth::after_step() {
  ++step_;
  news_.clear();
  const auto outside = static_cast<double>(communicator_.flight().outside_ticks() - begin_outside_);
  const auto whole_ticks = static_cast<double>(ticks() - begin_ticks_);
  const auto whole_ns = static_cast<double>(clock_ns(CLOCK_MONOTONIC) - begin_ns_);
  LinkTable::fill(row_, communicator_.meter(), outside / std::max(whole_ticks, 1.0) * whole_ns,
                  whole_ns);
  communicator_.all_gather(row_.data(), table_.all().data(), table_.bounds(), DType::f64);
  table_.sort();
  name_late_ranks();
  test_suspects();
  test_slow_ones();
  return news_;
}

// Twice in a row is not an accident; it is said once until it is over.
void LinkHealth::name_late_ranks() {
  std::vector<int> late = late_ranks(table_, options_.factor);
  for (const int rank : late) {
    if (!contains(late_before_, rank) || contains(late_named_, rank)) continue;
    LinkNews news;
    news.kind = LinkNews::Kind::late;
    news.link = {rank, rank};
    news.share = table_.outside(rank);
    news.others = table_.median_outside_without(rank);
    news_.push_back(news);
    late_named_.push_back(rank);
  }
  std::erase_if(late_named_, [&](int rank) { return !contains(late, rank); });
  late_before_ = std::move(late);
}

Retest& LinkHealth::retest_of(Link link) {
  const auto found = std::find_if(tested_.begin(), tested_.end(),
                                  [&](const Tested& one) { return one.link == link; });
  if (found != tested_.end()) return found->retest;
  return tested_.emplace_back(Tested{link}).retest;
}

bool LinkHealth::is_slow(Link link) const {
  return std::find(slow_.begin(), slow_.end(), link) != slow_.end();
}

// Seconds of a message over the link; the same number on all ranks.
double LinkHealth::time_of(Link link, std::size_t bytes) {
  std::fill(to_.begin(), to_.end(), -1);
  to_[static_cast<std::size_t>(link.from)] = link.to;
  const ProbeTimes times = probe_.run(to_, bytes, kTestMessages);
  const auto from = static_cast<std::size_t>(link.from);
  double all[2] = {0, 0};
  if (communicator_.rank() == link.to && communicator_.meter().carried()[from].same_clock) {
    all[0] = times.one_way_s;
  }
  if (communicator_.rank() == link.from) all[1] = times.there_back_s;
  communicator_.all_reduce(all, all, 2, DType::f64, ReduceOp::sum);
  return all[0] > 0 ? all[0] : all[1];
}

LinkHealth::Verdict LinkHealth::test(Link link, Link typical) {
  const auto fitting = static_cast<std::size_t>(
      std::min(table_.rate(typical) * kTestNs, static_cast<double>(kTestBytes)));
  const std::size_t bytes = std::max(fitting, kLeastTestBytes);
  const auto gb = static_cast<double>(bytes) * 1e-9;
  const double tested = gb / time_of(link, bytes);
  return {tested, gb / time_of(typical, bytes)};
}

void LinkHealth::test_suspects() {
  // The slowest one that has not just been tested; the next step may bring the next.
  for (const Link link : suspected_links(table_, options_.factor)) {
    Retest& retest = retest_of(link);
    if (is_slow(link) || !retest.due(step_)) continue;
    const auto typical = typical_link(table_, link);
    if (!typical) return;
    const Verdict verdict = test(link, *typical);
    if (!verdict.slower_than(options_.factor)) return retest.wrongly_suspected(step_);
    retest.found_slow(step_);
    slow_.push_back(link);
    ratios_.push_back(verdict.typical / verdict.gbps);
    LinkNews news;
    news.link = link;
    news.gbps = verdict.gbps;
    news.typical = verdict.typical;
    news_.push_back(news);
    go_around();
    news_.back().avoided = is_avoided(link);
    return;
  }
}

void LinkHealth::test_slow_ones() {
  for (std::size_t i = 0; i < slow_.size(); ++i) {
    const Link link = slow_[i];
    Retest& retest = retest_of(link);
    if (!retest.due(step_)) continue;
    const auto typical = typical_link(table_, link);
    if (!typical) return;
    const Verdict verdict = test(link, *typical);
    if (verdict.slower_than(healed_below(options_.factor))) {
      retest.still_slow(step_);
      continue;
    }
    retest.healed(step_);
    slow_.erase(slow_.begin() + static_cast<std::ptrdiff_t>(i));
    ratios_.erase(ratios_.begin() + static_cast<std::ptrdiff_t>(i));
    LinkNews news;
    news.kind = LinkNews::Kind::healed;
    news.link = link;
    news.gbps = verdict.gbps;
    news.typical = verdict.typical;
    news.avoided = is_avoided(link);
    news_.push_back(news);
    go_around();
    return;
  }
}

bool LinkHealth::is_avoided(Link link) const {
  const std::vector<Link>& avoided = communicator_.layout().slow;
  return std::find(avoided.begin(), avoided.end(), link) != avoided.end();
}

// A direct exchange goes around a link by giving two ranks nothing to own, and the others more:
// that must be less than what the link costs.
void LinkHealth::go_around() {
  const double ranks = communicator_.size();
  std::vector<Link> around;
  for (std::size_t i = 0; i < slow_.size(); ++i) {
    if (ratios_[i] * (ranks - 2) > ranks) around.push_back(slow_[i]);
  }
  // Another way makes all schedules anew.
  if (options_.reform && around != around_) {
    communicator_.avoid(around);
    around_ = std::move(around);
  }
  news_.back().epoch = communicator_.epoch();
}

}  // namespace belay::comm
