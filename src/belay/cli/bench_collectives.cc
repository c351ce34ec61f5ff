// belay bench collectives: every collective over the ranks that mpirun started, as nccl-tests does.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/cli/report.h"
#include "belay/comm/collectives_bench.h"
#include "belay/comm/simulated_cluster.h"

namespace belay {
namespace {

struct Options {
  comm::CollectivesBench bench;
  std::string collective = "all_reduce";
  std::string algorithm = "auto";
  std::string dtype = "f32";
  int simulate = 0;
  bool table = false;
  bool json = false;
};

nlohmann::json optional_number(double value) {
  return value > 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json to_json(const comm::CollectiveTiming& row) {
  nlohmann::json json = {{"collective", name_of(row.collective)},
                         {"bytes", row.bytes},
                         {"dtype", belay::name_of(row.dtype)},
                         {"algorithm", row.algorithm},
                         {"us", row.us},
                         {"mean_us", row.mean_us},
                         {"p99_us", row.p99_us},
                         {"algbw_gbps", row.algbw_gbps},
                         {"busbw_gbps", row.busbw_gbps},
                         {"correct", row.correct},
                         {"mpi_us", optional_number(row.mpi_us)},
                         {"gloo_us", optional_number(row.gloo_us)}};
  if (!row.best.empty()) {
    json["best"] = row.best;
    json["regret"] = row.regret;
  }
  return json;
}

void print_row(const comm::CollectiveTiming& row) {
  const auto or_dash = [](double value, double scale) {
    return value > 0 ? fmt::format("{:.2f}", value * scale) : std::string("-");
  };
  fmt::print(
      "{:>14} {:>11} {:>5} {:>22} {:>10.2f} {:>10.2f} {:>7.2f} {:>7.2f} {:>6} {:>10} {:>7} {:>10}",
      name_of(row.collective), row.bytes, belay::name_of(row.dtype), row.algorithm, row.us,
      row.p99_us, row.algbw_gbps, row.busbw_gbps, row.correct ? "yes" : "NO",
      or_dash(row.mpi_us, 1), or_dash(row.mpi_us / row.us, 1), or_dash(row.gloo_us, 1));
  if (!row.best.empty()) fmt::print("  best {}, regret {:.1f}%", row.best, 100 * row.regret);
  fmt::print("\n");
  std::fflush(stdout);
}

void simulate(const Options& options) {
  const comm::SimulatedCluster cluster = comm::simulate_cluster(options.simulate);
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const comm::SimulatedSize& size : cluster.sizes) {
      rows.push_back({{"tensor", size.name},
                      {"bytes", size.bytes},
                      {"count", size.count},
                      {"choice", to_string(size.choice)},
                      {"ring_s", size.ring_s},
                      {"doubling_tree_ring_s", size.doubling_tree_ring_s},
                      {"ring_tree_hierarchical_s", size.ring_tree_hierarchical_s},
                      {"adaptive_s", size.adaptive_s}});
    }
    fmt::print("{}\n",
               nlohmann::json{{"devices", cluster.devices},
                              {"rows", rows},
                              {"ring_s", cluster.ring_s},
                              {"doubling_tree_ring_s", cluster.doubling_tree_ring_s},
                              {"ring_tree_hierarchical_s", cluster.ring_tree_hierarchical_s},
                              {"adaptive_s", cluster.adaptive_s}}
                   .dump(1));
    return;
  }
  fmt::print("{} devices in virtual time, ms\n", cluster.devices);
  fmt::print("{:<26} {:>11} {:>6} {:>10} {:>10} {:>10} {:>10}  {}\n", "gradient of", "bytes",
             "count", "ring", "table 1", "table 2", "adaptive", "choice");
  const auto line = [](std::string_view name, std::size_t bytes, std::int64_t count, double ring,
                       double first, double second, double adaptive, const std::string& choice) {
    fmt::print("{:<26} {:>11} {:>6} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f}  {}\n", name, bytes,
               count, ring * 1e3, first * 1e3, second * 1e3, adaptive * 1e3, choice);
  };
  for (const comm::SimulatedSize& size : cluster.sizes) {
    line(size.name, size.bytes, size.count, size.ring_s, size.doubling_tree_ring_s,
         size.ring_tree_hierarchical_s, size.adaptive_s, to_string(size.choice));
  }
  line("mean", 0, 0, cluster.ring_s, cluster.doubling_tree_ring_s, cluster.ring_tree_hierarchical_s,
       cluster.adaptive_s,
       fmt::format("{:.1f} times below the ring", cluster.ring_s / cluster.adaptive_s));
  fmt::print("table 1: doubling-tree-ring; table 2: ring-tree-hierarchical\n");
}

void print_report(const comm::CollectivesReport& report, const Options& options) {
  if (options.table && !options.json) fmt::print("{}\n{}", report.topology, report.table);
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const comm::CollectiveTiming& row : report.rows) rows.push_back(to_json(row));
    fmt::print("{}\n", nlohmann::json{{"ranks", report.ranks},
                                      {"topology", report.topology},
                                      {"rows", rows},
                                      {"mpi_ratio_geomean", optional_number(report.mpi_ratio)},
                                      {"mpi_ratio_least", optional_number(report.least_ratio)}}
                           .dump(1));
  } else if (report.mpi_ratio > 0) {
    fmt::print("{} ranks; time of MPI over belay's: geometric mean {:.2f}, least {:.2f}\n",
               report.ranks, report.mpi_ratio, report.least_ratio);
  }
}

void run(comm::World& world, const Options& options) {
  bool heading = !options.json;
  const comm::CollectivesReport report =
      comm::bench_collectives(world, options.bench, [&](const comm::CollectiveTiming& row) {
        if (options.json) return;
        if (heading) {
          fmt::print(
              "{:>14} {:>11} {:>5} {:>22} {:>10} {:>10} {:>7} {:>7} {:>6} {:>10} {:>7} {:>10}\n",
              "collective", "bytes", "dtype", "algorithm", "p50 us", "p99 us", "algbw", "busbw",
              "right", "MPI us", "ratio", "gloo us");
          heading = false;
        }
        print_row(row);
      });
  if (report.rank == 0) print_report(report, options);
  comm::refuse_wrong_results(report);
}

}  // namespace

void add_bench_collectives(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "collectives", "Collectives among the ranks that mpirun started, beside MPI's own");
  command->add_option("--collective", options->collective, "One of them, or all")
      ->capture_default_str();
  command->add_option("--algorithm", options->algorithm, "One of them, all, or auto")
      ->capture_default_str();
  command->add_option("--min-bytes", options->bench.min_bytes, "Smallest vector")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--max-bytes", options->bench.max_bytes, "Largest vector")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "f32, f64, bf16, f16 or i32")
      ->capture_default_str();
  command->add_option("--iterations", options->bench.iterations, "Timed calls per size, at least")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seconds", options->bench.seconds, "Time per size and contestant, about")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option("--chooser", options->bench.chooser,
                   "model (calibrated at start), size, or a fixed table: doubling-tree-ring, "
                   "ring-tree-hierarchical")
      ->capture_default_str();
  command->add_option("--force", options->bench.force,
                      "A choice for a range of sizes: 'all_reduce:0-65536=recursive_doubling'");
  command->add_option("--rank-map", options->bench.rank_map,
                      "File of rank_id,npu_id,hccs_domain: which ranks share fast links");
  command->add_option("--inject", options->bench.inject,
                      "Faults to inject: 'link 0-1 bandwidth=1e8; rank 1 stop@call=40'");
  command->add_flag("--regret", options->bench.regret,
                    "Time every other candidate too: how much slower the choice is than the best");
  command
      ->add_option("--simulate", options->simulate,
                   "Instead: all-reduce on so many Ascend 910B devices in virtual time")
      ->check(above_zero());
  command->add_flag("--table", options->table, "Print the table of choices");
  command->add_flag("--order-stable", options->bench.order_stable,
                    "The same bits for every algorithm");
  command->add_flag("!--no-gloo", options->bench.gloo, "Leave gloo out, which is slow");
  command->add_flag("--messages", options->bench.messages,
                    "MPI messages instead of shared memory, as between hosts");
  command->add_flag("--private", options->bench.private_memory,
                    "Vectors in ordinary memory, copied on the way");
  command->add_flag(
      "--out-of-place", options->bench.out_of_place,
      "All-reduce from one vector to another; else in place, as gradients are summed");
  command->add_flag("--json", options->json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  mpirun -n 2 belay bench collectives\n"
      "  mpirun -n 4 belay bench collectives --collective all --max-bytes 1048576 --json");
  command->callback([options] {
    if (options->simulate > 0) return simulate(*options);
    comm::CollectivesBench& bench_options = options->bench;
    bench_options.collective = options->collective;
    bench_options.algorithm = options->algorithm;
    bench_options.dtype = options->dtype;
    as_rank({.shared_memory = !bench_options.messages},
            [&](comm::World& world) { run(world, *options); });
  });
}

}  // namespace belay
