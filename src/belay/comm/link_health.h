#pragma once
// Watches the links of a group while it works, and leads calls around a slow one.
//
// Between steps the ranks show each other what the links to them have carried, and how much of the
// step each was outside of calls. From that, the same on all ranks: a rank that was outside more
// than `factor` times as long as the others computes slowly, and its links are not to blame; a link
// that carried less than the median of the links / `factor`, and cost the step something, is
// suspected, and tested by a message of its own, beside another one to compare with. If the test
// says so too, calls avoid the link from the next step on (detour.h). Now and then, less and less
// often, the link is tested again, and used again when it is well.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "belay/comm/communicator.h"
#include "belay/comm/link_probe.h"
#include "belay/comm/retest.h"

namespace belay::comm {

// What a step said of the links, as all ranks know it.
class LinkTable {
 public:
  // domain_of: of each rank; empty: one domain. Links are compared with those of their kind: within
  // domains, or between them.
  explicit LinkTable(int ranks, std::vector<int> domain_of = {});

  // One rank's row: bytes and ns by peer, its ns outside of calls and of the whole step.
  [[nodiscard]] std::span<double> row(int rank);
  [[nodiscard]] std::span<double> all() { return values_; }
  [[nodiscard]] const std::vector<std::int64_t>& bounds() const { return bounds_; }
  static void fill(std::span<double> row, const LinkMeter& meter, double outside, double whole);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] double bytes(Link link) const { return at(link.to, link.from); }
  [[nodiscard]] double ns(Link link) const { return at(link.to, ranks_ + link.from); }
  [[nodiscard]] double whole_ns(int rank) const { return at(rank, 2 * ranks_ + 1); }
  // Whether the link leads from one domain to another.
  [[nodiscard]] bool crosses(Link link) const;
  // Part of the step that the rank was not in a call.
  [[nodiscard]] double outside(int rank) const;
  // Bytes per ns; 0 where too little was carried to tell.
  [[nodiscard]] double rate(Link link) const;

  // After the rows have changed. The medians of all links of a kind, and of all ranks, but one;
  // allocates nothing.
  void sort();
  [[nodiscard]] double median_rate_without(Link link) const;
  [[nodiscard]] double median_outside_without(int rank) const;

 private:
  [[nodiscard]] double at(int row, int column) const {
    return values_[static_cast<std::size_t>(row * (2 * ranks_ + 2) + column)];
  }
  int ranks_;
  std::vector<int> domain_of_;
  std::vector<double> values_;
  std::vector<std::int64_t> bounds_;
  std::array<std::vector<double>, 2> rates_;  // of links that have one, by kind, sorted
  std::vector<double> outside_;               // sorted
};

// A slow link has healed when the typical one carries less than so many times as much: less than
// `factor`, so that it is not found slow again at once; more than 1, so that a typical link heals.
double healed_below(double factor);

// Ranks that compute slowly, and links that are suspected, the slowest first, by a sorted table.
std::vector<int> late_ranks(const LinkTable& table, double factor);
std::vector<Link> suspected_links(const LinkTable& table, double factor);
// The link whose rate is the median of those of the same kind that share no rank with `other`, or
// if there are none, of all others of that kind.
std::optional<Link> typical_link(const LinkTable& table, Link other);

struct LinkNews {
  enum class Kind : std::uint8_t { slow, healed, late };
  Kind kind = Kind::slow;
  Link link;           // of late: the rank, twice
  double gbps = 0;     // as tested
  double typical = 0;  // of the link it was compared with
  double share = 0;    // of late: of the step outside of calls, and the median of the others
  double others = 0;
  bool avoided = false;  // slow: calls go around it now; healed: they did until now
  std::uint32_t epoch = 0;
};

struct LinkHealthOptions {
  double factor = 2;
  bool reform = true;  // false: only say so
};

class LinkHealth {
 public:
  // Collective. The communicator must outlive it.
  LinkHealth(Communicator& communicator, const LinkHealthOptions& options);

  // A step begins: what was before does not count.
  void begin_step();
  // After a step, when no call is under way; collective. What is new, the same on all ranks; valid
  // until the next call. Error(communication) as of every call.
  std::span<const LinkNews> after_step();
  // What the last step said.
  [[nodiscard]] const LinkTable& table() const { return table_; }
  // Links that count as slow now.
  [[nodiscard]] const std::vector<Link>& slow() const { return slow_; }

 private:
  struct Tested {
    Link link;
    Retest retest{};
  };
  struct Verdict {
    double gbps = 0;
    double typical = 0;
    [[nodiscard]] bool slower_than(double factor) const { return gbps * factor < typical; }
  };
  Retest& retest_of(Link link);
  [[nodiscard]] bool is_slow(Link link) const;
  Verdict test(Link link, Link typical);
  double time_of(Link link, std::size_t bytes);
  void test_suspects();
  void test_slow_ones();
  void name_late_ranks();
  void go_around();
  [[nodiscard]] bool is_avoided(Link link) const;

  Communicator& communicator_;
  LinkHealthOptions options_;
  LinkProbe probe_;
  LinkTable table_;
  std::vector<double> row_;
  std::vector<int> to_;
  std::vector<Link> slow_;
  std::vector<double> ratios_;  // of typical bandwidth to theirs
  std::vector<Link> around_;    // of the slow ones, those that calls should go around
  std::vector<Tested> tested_;
  std::vector<int> late_before_;  // of the step before
  std::vector<int> late_named_;
  std::vector<LinkNews> news_;
  std::int64_t step_ = 0;
  std::uint64_t begin_outside_ = 0;  // ticks
  std::uint64_t begin_ticks_ = 0;
  std::uint64_t begin_ns_ = 0;
};

}  // namespace belay::comm
