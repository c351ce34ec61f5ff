// belay train

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/cli/commands.h"
#include "belay/cli/options.h"
#include "belay/cli/report.h"
#include "belay/comm/calibrate.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/flight_signals.h"
#include "belay/comm/topology.h"
#include "belay/comm/world.h"
#include "belay/plan/plan.h"
#include "belay/train/rank_group.h"
#include "belay/train/settings_check.h"
#include "belay/train/trainer.h"

namespace belay {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string timeline;
  bool json = false;
  TrainOptions options;
};

// "10" or "10-12".
void parse_timeline(const std::string& text, TrainOptions& options) {
  if (text.empty()) return;
  std::istringstream stream(text);
  char dash = 0;
  if (stream >> options.timeline_first) {
    if (stream >> dash) {
      stream >> options.timeline_last;
    } else {
      options.timeline_last = options.timeline_first;
      stream.clear(std::ios::eofbit);
    }
  }
  const bool complete = !stream.fail() && stream.peek() == std::istringstream::traits_type::eof();
  if (!complete || (dash != 0 && dash != '-') || options.timeline_first < 1 ||
      options.timeline_last < options.timeline_first) {
    fail(ExitCode::usage, "--timeline '{}' is not STEP or FIRST-LAST, for example 10-12", text);
  }
}

void print_summary(const TrainSummary& s, const std::string& out, bool json) {
  if (json) {
    nlohmann::ordered_json object = {{"first_step", s.first_step},
                                     {"last_step", s.last_step},
                                     {"finished", s.finished},
                                     {"loss", s.loss},
                                     {"predicted_step_ms", s.predicted_step_ms},
                                     {"measured_step_ms", s.measured_step_ms},
                                     {"peak_rss_bytes", s.peak_rss_bytes},
                                     {"ranks", s.ranks},
                                     {"comm_bytes", s.comm_bytes},
                                     {"comm_dense_bytes", s.comm_dense_bytes},
                                     {"snapshot", s.snapshot}};
    if (s.val_loss) object["val_loss"] = *s.val_loss;
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{} at step {}: loss {:.4f}", s.finished ? "finished" : "stopped", s.last_step,
             s.loss);
  if (s.val_loss) fmt::print(", validation loss {:.4f}", *s.val_loss);
  fmt::print("\n");
  if (s.measured_step_ms > 0 && s.predicted_step_ms > 0) {
    fmt::print("step time: predicted {:.1f} ms, measured {:.1f} ms (median), {:+.1f}%\n",
               s.predicted_step_ms, s.measured_step_ms,
               100.0 * (s.predicted_step_ms / s.measured_step_ms - 1.0));
  }
  fmt::print("peak memory: {}\n", human_bytes(static_cast<double>(s.peak_rss_bytes)));
  if (s.comm_bytes < s.comm_dense_bytes) {
    fmt::print("gradients sent by a rank: {}, {:.1f}% less than without compression\n",
               human_bytes(s.comm_bytes), 100 * (1 - s.comm_bytes / s.comm_dense_bytes));
  }
  if (!s.snapshot.empty()) fmt::print("snapshot: {}\n", s.snapshot);
  if (!s.finished) fmt::print("continue with: belay train CONFIG --out {} --resume auto\n", out);
}

// Ranks that start with all processors of their host would take them from each other.
void share_processors(int ranks) {
  if (ranks == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const int share = std::max(1, online / ranks);
  if (thread_count() < share) {
    log::warn(
        "a rank may use {} of the {} processors here; mpirun --bind-to none gives each of the {} "
        "ranks {}",
        thread_count(), online, ranks, share);
  }
  set_thread_count(std::min(thread_count(), share));
}

// An error of one rank among several says whose it is.
[[noreturn]] void throw_named(int rank, const Error& error) {
  const bool said_elsewhere = std::string_view(error.what()).empty();
  if (rank == 0 || said_elsewhere || error.code() == ExitCode::communication) throw error;
  fail(error.code(), "rank {}: {}", rank, error.what());
}

RunConfig load_as(int rank, int ranks, const Arguments& arguments) {
  try {
    return load_config(arguments.config, arguments.overrides, ranks);
  } catch (const Error& error) {
    // A file may be missing on one rank only; a wrong configuration is as wrong on every rank.
    if (error.code() == ExitCode::usage) throw;
    throw_named(rank, error);
  }
}

void refuse_difference(const std::string& own, const std::string& first) {
  const std::string difference = difference_of_settings(own, first);
  if (difference.empty()) return;
  fail(
      ExitCode::usage,
      "the configuration differs from the first rank's: {}; start all ranks with the same file and "
      "options",
      difference);
}

// Ranks read the configuration each for itself, perhaps from another file.
void compare_settings(const RankGroup& ranks, const RunConfig& config,
                      const TrainOptions& options) {
  const std::string own = fmt::format("{}--out {}\n--resume {}\n--stop-at {}\n", to_toml(config),
                                      options.out, options.resume, options.stop_at);
  const std::string first = ranks.share(own);
  ranks.together([&] { refuse_difference(own, first); });
}

// The first rank reads the map for all.
comm::Topology topology_of(comm::World& world, comm::Communicator& communicator,
                           const std::string& path) {
  if (path.empty()) return comm::find_topology(communicator, world.host_of());
  const RankGroup ranks(&communicator);
  const auto parsed = [&](const std::string& text) {
    return comm::topology_of_map(comm::parse_rank_map(text, path), world.host_of(), path);
  };
  std::string text;
  ranks.together([&] {
    if (!ranks.first()) return;
    text = read_file(path);
    parsed(text);
  });
  return parsed(ranks.share(text));
}

void choose_collectives(comm::World& world, comm::Communicator& communicator,
                        const comm::CommConfig& config) {
  const comm::Topology topology = topology_of(world, communicator, config.rank_map);
  if (communicator.size() == 1) return;
  log::info("{}", topology.to_text());
  communicator.set_layout(topology.layout());
  const auto chosen = comm::chooser_named(communicator, name_of(config.chooser),
                                          forced_choices(config), topology.domain_of);
  communicator.set_chooser(chosen.chooser);
  if (!chosen.table.empty()) log::debug("collectives by predicted time:\n{}", chosen.table);
}

void run(comm::World& world, const Arguments& arguments) {
  TrainOptions options = arguments.options;
  parse_timeline(arguments.timeline, options);
  for (const std::string& assignment : arguments.overrides) {
    options.allow_new_optimizer = options.allow_new_optimizer ||
                                  assignment.starts_with("optimizer.") ||
                                  assignment.starts_with("train.steps");
  }
  const bool first = world.rank() == 0;
  if (!first) log::set_level(log::Level::error);
  const RunConfig config = load_as(world.rank(), world.size(), arguments);
  options.host = place_on_host(world.host_of(), world.rank());
  share_processors(options.host.ranks);
  comm::CommunicatorOptions how;
  how.timeout_s = config.comm.timeout_s;
  how.order_stable = config.comm.order_stable;
  if (world.size() > 1) comm::write_flight_records_at_signals();
  const std::unique_ptr<comm::Transport> faults =
      comm::inject_faults(world.transport(), config.comm.inject, comm::RankIs::process);
  comm::Communicator communicator(faults != nullptr ? *faults : world.transport(), how);
  options.communicator = &communicator;
  TrainSummary summary;
  try {
    summary = comm::noting_failure(communicator.flight(), [&] {
      compare_settings(RankGroup(&communicator), config, options);
      choose_collectives(world, communicator, config.comm);
      return train(config, options);
    });
  } catch (...) {
    const Error error = current_error();
    communicator.abort(error);
    throw_named(world.rank(), error);
  }
  if (first) print_summary(summary, options.out, arguments.json);
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model from a configuration file");
  auto a = std::make_shared<Arguments>();
  command->add_option("config", a->config, "TOML file; see the user guide for every key")
      ->required();
  command->add_option("--out", a->options.out, "Run directory")->required();
  command->add_option("--resume", a->options.resume,
                      "'auto': from the newest good snapshot of --out, if any; or a snapshot");
  command->add_option("--set", a->overrides, "section.key=value; may be given several times")
      ->take_all();
  command
      ->add_option("--stop-at", a->options.stop_at, "Save and stop after this step; 0: at the end")
      ->check(at_least_zero());
  command->add_option("--timeline", a->timeline,
                      "STEP or FIRST-LAST: write a trace of these steps for Perfetto");
  command->add_flag("--json", a->json, "Print the summary as JSON");
  command->footer(
      "Examples:\n"
      "  belay train config.toml --out runs/a\n"
      "  belay train config.toml --out runs/a --resume auto --set optimizer.lr=3e-4\n"
      "  belay train config.toml --out runs/b --timeline 10-12\n"
      "  mpirun -n 4 belay train config.toml --out runs/c\n"
      "SIGINT, SIGTERM and SIGUSR1 save a snapshot after the present step and stop; to stop "
      "several\n"
      "ranks, send mpirun SIGUSR1.");
  command->callback([a] { as_rank({}, [&](comm::World& world) { run(world, *a); }); });
}

}  // namespace belay
