#include "belay/comm/links_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>

#include "belay/base/error.h"
#include "belay/base/median.h"
#include "belay/comm/link_probe.h"

namespace belay::comm {
namespace {

constexpr std::size_t kSmallBytes = 8;

class Bench {
 public:
  Bench(Communicator& comm, const std::vector<int>& host_of, const LinksBench& options)
      : comm_(comm),
        host_of_(host_of),
        options_(options),
        probe_(comm, std::max(options.bytes, kSmallBytes)),
        ranks_(static_cast<std::size_t>(comm.size())),
        to_(ranks_) {}

  LinksReport run() {
    LinksReport report;
    report.rank = comm_.rank();
    report.ranks = comm_.size();
    measure_alone(report);
    measure_rings(report);
    find_bad(report);
    return report;
  }

 private:
  struct Link {
    double latency_s = 0;
    double transfer_s = 0;  // of options_.bytes
  };
  [[nodiscard]] std::size_t at(std::size_t from, std::size_t to) const {
    return from * ranks_ + to;
  }
  [[nodiscard]] bool same_clock(std::size_t a, std::size_t b) const {
    return host_of_[a] == host_of_[b];
  }

  // All links of `to_` at once; the result, by [from], is the same on all ranks.
  std::vector<Link> measure(int repetitions) {
    // Whoever is not asked waits, and the first messages find the ranks asleep.
    const ProbeTimes small = probe_.run(to_, kSmallBytes, 4 * repetitions);
    const ProbeTimes large = probe_.run(to_, options_.bytes, repetitions);
    std::vector<double> times(4 * ranks_);
    const auto own = static_cast<std::size_t>(comm_.rank());
    for (std::size_t from = 0; from < ranks_; ++from) {
      if (to_[from] != comm_.rank()) continue;
      times[4 * from] = small.one_way_s;
      times[4 * from + 1] = large.one_way_s;
    }
    times[4 * own + 2] = small.there_back_s;
    times[4 * own + 3] = large.there_back_s;
    comm_.all_reduce(times.data(), times.data(), std::ssize(times), DType::f64, ReduceOp::sum);
    std::vector<Link> links(ranks_);
    for (std::size_t from = 0; from < ranks_; ++from) {
      if (to_[from] < 0) continue;
      const double* const t = times.data() + 4 * from;
      const bool here = same_clock(from, static_cast<std::size_t>(to_[from]));
      const double latency = here ? t[0] : t[2] / 2;
      const double whole = here ? t[1] : t[3] - t[2] / 2;
      links[from] = {latency, std::max(whole - latency, 1e-9)};
    }
    return links;
  }

  Link measure_one(std::size_t from, std::size_t to, int repetitions) {
    std::fill(to_.begin(), to_.end(), -1);
    to_[from] = static_cast<int>(to);
    return measure(repetitions)[from];
  }

  [[nodiscard]] double gbps_of(const Link& link) const {
    return static_cast<double>(options_.bytes) / link.transfer_s * 1e-9;
  }

  void measure_alone(LinksReport& report) {
    report.latency_us.assign(ranks_ * ranks_, 0);
    report.gbps.assign(ranks_ * ranks_, 0);
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        if (from == to) continue;
        const Link link = measure_one(from, to, options_.repetitions);
        report.latency_us[at(from, to)] = link.latency_s * 1e6;
        report.gbps[at(from, to)] = gbps_of(link);
      }
    }
    report.median_latency_us = median_of(report.latency_us, std::nullopt);
    report.median_gbps = median_of(report.gbps, std::nullopt);
  }

  void measure_rings(LinksReport& report) {
    report.gbps_together.assign(ranks_ * ranks_, 0);
    std::vector<double> times;
    for (std::size_t step = 1; step < ranks_; ++step) {
      for (std::size_t from = 0; from < ranks_; ++from) {
        to_[from] = static_cast<int>((from + step) % ranks_);
      }
      const std::vector<Link> links = measure(options_.repetitions);
      RingTest ring;
      ring.step = static_cast<int>(step);
      double slowest = 0;
      for (std::size_t from = 0; from < ranks_; ++from) {
        const auto to = static_cast<std::size_t>(to_[from]);
        report.gbps_together[at(from, to)] = gbps_of(links[from]);
        if (links[from].transfer_s <= slowest) continue;
        slowest = links[from].transfer_s;
        ring.slowest_from = static_cast<int>(from);
        ring.slowest_to = static_cast<int>(to);
        ring.us = (links[from].transfer_s + links[from].latency_s) * 1e6;
        ring.gbps = gbps_of(links[from]);
      }
      times.push_back(ring.us);
      report.rings.push_back(ring);
    }
    const double middle = median(times);
    const double all = median_of(report.gbps_together, std::nullopt);
    for (RingTest& ring : report.rings) {
      ring.bad = ring.us > options_.factor * middle || ring.gbps * options_.factor < all;
    }
  }

  // Of the links within hosts, or between them, or of all.
  [[nodiscard]] double median_of(const LinkMatrix& matrix, std::optional<bool> within) const {
    std::vector<double> values;
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        if (from == to || (within && same_clock(from, to) != *within)) continue;
        values.push_back(matrix[at(from, to)]);
      }
    }
    return median(std::move(values));
  }

  void find_bad(LinksReport& report) {
    // Differences of a few microseconds are the processor's.
    constexpr double kLatencyFloorUs = 20;
    // Of links between hosts, and within them.
    const std::array<double, 2> latencies = {median_of(report.latency_us, false),
                                             median_of(report.latency_us, true)};
    const std::array<double, 2> rates = {median_of(report.gbps, false),
                                         median_of(report.gbps, true)};
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) {
        if (from == to) continue;
        const std::size_t within = same_clock(from, to) ? 1 : 0;
        const double latency = latencies[within];
        const double gbps = rates[within];
        const auto slow = [&](double value) { return value * options_.factor < gbps; };
        const auto late = [&](double value) {
          return value > options_.factor * latency && value > latency + kLatencyFloorUs;
        };
        const std::size_t link = at(from, to);
        if (!slow(report.gbps[link]) && !late(report.latency_us[link])) continue;
        const Link again = measure_one(from, to, 2 * options_.repetitions);
        BadLink bad{static_cast<int>(from), static_cast<int>(to), again.latency_s * 1e6,
                    gbps_of(again)};
        bad.slow = slow(bad.gbps);
        bad.late = late(bad.latency_us);
        if (bad.slow || bad.late) report.bad.push_back(bad);
      }
    }
    for (int rank = 0; rank < comm_.size() && comm_.size() > 2; ++rank) {
      const auto touching =
          std::count_if(report.bad.begin(), report.bad.end(),
                        [rank](const BadLink& bad) { return bad.from == rank || bad.to == rank; });
      if (touching > comm_.size() - 1) report.bad_ranks.push_back(rank);
    }
  }

  Communicator& comm_;
  const std::vector<int>& host_of_;
  const LinksBench& options_;
  LinkProbe probe_;
  std::size_t ranks_;
  std::vector<int> to_;
};

// What the recorder costs a call, by itself.
double time_recording(const Transport& transport) {
  constexpr int kCalls = 1'000'000;
  FlightRecorder recorder(transport);
  Signature call;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i <= kCalls; ++i) {
    call.sequence = static_cast<std::uint64_t>(i);
    recorder.queued(call);
    recorder.started(call);
    recorder.done(call.sequence);
  }
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
  return passed.count() / kCalls;
}

}  // namespace

LinksReport bench_links(Transport& transport, const std::vector<int>& host_of,
                        const LinksBench& options) {
  if (transport.size() < 2) {
    fail(ExitCode::usage, "there are no links with one rank: start mpirun -n 2 belay bench links");
  }
  CommunicatorOptions how;
  how.timeout_s = options.timeout_s;
  Communicator communicator(transport, how);
  if (!options.flight.empty()) communicator.flight().keep_in(options.flight);
  LinksReport report = Bench(communicator, host_of, options).run();
  report.record_ns = time_recording(transport);
  return report;
}

}  // namespace belay::comm
