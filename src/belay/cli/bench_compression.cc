// belay bench compression: sums of gradients with fewer bytes, beside plain ones.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/cli/bench.h"
#include "belay/cli/options.h"
#include "belay/cli/report.h"
#include "belay/parallel/compression_bench.h"

namespace belay {
namespace {

struct Options {
  CompressionBench bench;
  bool json = false;
};

nlohmann::json to_json(const CompressionRow& row) {
  return {{"mode", comm::name_of(row.mode)},
          {"bytes", row.bytes},
          {"dense_bytes", row.dense_bytes},
          {"sent_bytes", row.sent_bytes},
          {"saved", 1 - row.sent_bytes / row.dense_bytes},
          {"dense_us", row.dense_us},
          {"us", row.us},
          {"predicted_dense_us", row.predicted_dense_us},
          {"predicted_us", row.predicted_us},
          {"predicted_to_pay", row.predicted_us < row.predicted_dense_us},
          {"pays", row.us < row.dense_us},
          {"encode_gbps", row.encode_gbps},
          {"decode_gbps", row.decode_gbps}};
}

void print_heading() {
  fmt::print("{:>10} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6} {:>9} {:>6} {:>8} {:>8}\n", "mode",
             "bytes", "sent", "saved", "dense us", "us", "faster", "predicted", "pays", "encode",
             "decode");
}

void print_row(const CompressionRow& row) {
  fmt::print(
      "{:>10} {:>10} {:>10.0f} {:>5.1f}% {:>10.1f} {:>10.1f} {:>6.2f} {:>9.2f} {:>6} {:>8.2f} "
      "{:>8.2f}\n",
      comm::name_of(row.mode), row.bytes, row.sent_bytes,
      100 * (1 - row.sent_bytes / row.dense_bytes), row.dense_us, row.us, row.dense_us / row.us,
      row.predicted_dense_us / row.predicted_us,
      row.predicted_us < row.predicted_dense_us ? "yes" : "no", row.encode_gbps, row.decode_gbps);
  std::fflush(stdout);
}

void run(comm::World& world, const Options& options) {
  bool heading = !options.json;
  const CompressionReport report =
      bench_compression(world, options.bench, [&](const CompressionRow& row) {
        if (options.json) return;
        if (heading) print_heading();
        heading = false;
        print_row(row);
      });
  if (report.rank != 0) return;
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const CompressionRow& row : report.rows) rows.push_back(to_json(row));
    fmt::print(
        "{}\n",
        nlohmann::json{{"ranks", report.ranks}, {"group", report.group}, {"rows", rows}}.dump(1));
    return;
  }
  fmt::print(
      "{} ranks, {} of them exchange compressed gradients; faster: dense time over compressed, "
      "measured and predicted; encode, decode: GB/s of the gradient\n",
      report.ranks, report.group);
}

}  // namespace

void add_bench_compression(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CompressionBench& what = options->bench;
  CLI::App* command = bench.add_subcommand(
      "compression", "Compressed sums of gradients beside plain ones: bytes, time, codecs");
  command->add_option("--mode", what.mode, "int8, topk, topk_int8 or all")->capture_default_str();
  command->add_option("--ratio", what.ratio, "Share that topk sends")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  command->add_option("--level", what.level, "Between which ranks: all, or slow (domains)")
      ->capture_default_str();
  command->add_option("--min-bytes", what.min_bytes, "Smallest gradient")
      ->check(CLI::Range(std::int64_t{64}, std::int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--max-bytes", what.max_bytes, "Largest gradient")
      ->check(CLI::Range(std::int64_t{64}, std::int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--iterations", what.iterations, "Timed sums per size and way")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--threads", what.threads, "Ranks as threads, where mpirun started none")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--domains", what.domains, "Domains that those threads are spread over")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--inject", what.inject,
                      "Slow links, as in [comm] inject: 'all bandwidth=1e8'");
  command->add_flag("--json", options->json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  mpirun -n 2 belay bench compression --inject 'all bandwidth=1e8'\n"
      "  belay bench compression --threads 4 --domains 2 --level slow --json");
  command->callback([options] { as_rank({}, [&](comm::World& world) { run(world, *options); }); });
}

}  // namespace belay
