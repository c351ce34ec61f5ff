// belay bench links: every link among the ranks that mpirun started.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/base/error.h"
#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/cli/report.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/flight_signals.h"
#include "belay/comm/links_bench.h"
#include "belay/comm/world.h"

namespace belay {
namespace {

struct Options {
  comm::LinksBench bench;
  std::string inject;
  bool messages = false;
  bool json = false;
};

nlohmann::json matrix_json(const comm::LinkMatrix& matrix, int ranks) {
  nlohmann::json rows = nlohmann::json::array();
  for (int from = 0; from < ranks; ++from) {
    const auto begin = matrix.begin() + from * ranks;
    rows.push_back(std::vector<double>(begin, begin + ranks));
  }
  return rows;
}

std::string why(const comm::BadLink& bad) {
  if (bad.slow && bad.late) return "slow and late";
  return bad.slow ? "slow" : "late";
}

void print_json(const comm::LinksReport& report, const comm::LinksBench& bench) {
  nlohmann::json rings = nlohmann::json::array();
  for (const comm::RingTest& ring : report.rings) {
    rings.push_back({{"step", ring.step},
                     {"us", ring.us},
                     {"gbps", ring.gbps},
                     {"slowest_from", ring.slowest_from},
                     {"slowest_to", ring.slowest_to},
                     {"bad", ring.bad}});
  }
  nlohmann::json bad = nlohmann::json::array();
  for (const comm::BadLink& link : report.bad) {
    bad.push_back({{"from", link.from},
                   {"to", link.to},
                   {"why", why(link)},
                   {"latency_us", link.latency_us},
                   {"gbps", link.gbps}});
  }
  const nlohmann::json json = {{"ranks", report.ranks},
                               {"bytes", bench.bytes},
                               {"latency_us", matrix_json(report.latency_us, report.ranks)},
                               {"gbps", matrix_json(report.gbps, report.ranks)},
                               {"gbps_together", matrix_json(report.gbps_together, report.ranks)},
                               {"median_latency_us", report.median_latency_us},
                               {"median_gbps", report.median_gbps},
                               {"rings", rings},
                               {"bad", bad},
                               {"bad_ranks", report.bad_ranks},
                               {"record_ns", report.record_ns}};
  fmt::print("{}\n", json.dump(1));
}

void print_matrix(const char* title, const comm::LinkMatrix& matrix, int ranks) {
  fmt::print("{}\n{:>9}", title, "from \\ to");
  for (int to = 0; to < ranks; ++to) fmt::print(" {:>8}", to);
  fmt::print("\n");
  for (int from = 0; from < ranks; ++from) {
    fmt::print("{:>9}", from);
    for (int to = 0; to < ranks; ++to) {
      const auto link = static_cast<std::size_t>(from * ranks + to);
      fmt::print(" {:>8}", from == to ? std::string("-") : fmt::format("{:.4g}", matrix[link]));
    }
    fmt::print("\n");
  }
}

void print_text(const comm::LinksReport& report) {
  print_matrix("latency of one link at a time, us", report.latency_us, report.ranks);
  print_matrix("bandwidth of one link at a time, GB/s", report.gbps, report.ranks);
  print_matrix("bandwidth in rings, all ranks at once, GB/s", report.gbps_together, report.ranks);
  for (const comm::RingTest& ring : report.rings) {
    fmt::print(
        "ring of every rank to the one {} on: {:.1f} us, slowest link {} -> {} with {:.4g} "
        "GB/s{}\n",
        ring.step, ring.us, ring.slowest_from, ring.slowest_to, ring.gbps, ring.bad ? "  BAD" : "");
  }
  fmt::print("median {:.4g} us, {:.4g} GB/s; a flight record costs a call {:.0f} ns\n",
             report.median_latency_us, report.median_gbps, report.record_ns);
  for (const comm::BadLink& bad : report.bad) {
    fmt::print("link {} -> {} is {}: {:.4g} us, {:.4g} GB/s\n", bad.from, bad.to, why(bad),
               bad.latency_us, bad.gbps);
  }
  for (const int rank : report.bad_ranks) {
    fmt::print("most links of rank {} are bad: look at its host or device first\n", rank);
  }
}

std::string names_of(const std::vector<comm::BadLink>& bad) {
  std::vector<std::string> names;
  for (const comm::BadLink& link : bad) {
    names.push_back(fmt::format("{} -> {} ({})", link.from, link.to, why(link)));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void run(comm::World& world, const Options& options) {
  if (!options.bench.flight.empty()) comm::write_flight_records_at_signals();
  const std::unique_ptr<comm::Transport> faults =
      comm::inject_faults(world.transport(), options.inject, comm::RankIs::process);
  const comm::LinksReport report = comm::bench_links(
      faults != nullptr ? *faults : world.transport(), world.host_of(), options.bench);
  if (report.rank == 0) {
    if (options.json) {
      print_json(report, options.bench);
    } else {
      print_text(report);
    }
  }
  if (report.bad.empty()) return;
  // Said once.
  if (report.rank != 0) throw Error(ExitCode::communication, "");
  fail(ExitCode::communication, "{} of {} links are worse than the median by more than {}: {}",
       report.bad.size(), report.ranks * (report.ranks - 1), options.bench.factor,
       names_of(report.bad));
}

}  // namespace

void add_bench_links(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "links", "Latency and bandwidth of every link among the ranks that mpirun started");
  command->add_option("--bytes", options->bench.bytes, "Of a message, for bandwidth")
      ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--repetitions", options->bench.repetitions,
                   "Messages per link, of which the best counts")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command
      ->add_option("--factor", options->bench.factor,
                   "A link worse than the median by this factor, twice, is bad")
      ->check(CLI::Range(1.05, 1e6))
      ->capture_default_str();
  command->add_option("--flight", options->bench.flight,
                      "Directory for flight records, should a rank fail");
  command->add_option("--inject", options->inject, "Faults to inject: 'link 0->1 bandwidth=1e8'");
  command->add_flag("--messages", options->messages,
                    "MPI messages instead of shared memory, as between hosts");
  command->add_flag("--json", options->json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  mpirun -n 4 belay bench links\n"
      "  mpirun -n 8 belay bench links --bytes 16777216 --json\n"
      "Ends with 5 when a link is bad.");
  command->callback([options] {
    as_rank({.shared_memory = !options->messages},
            [&](comm::World& world) { run(world, *options); });
  });
}

}  // namespace belay
