#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "belay/base/file.h"
#include "belay/cli/commands.h"
#include "belay/cli/terminal.h"
#include "belay/observe/loss_curve.h"

namespace belay {
namespace {

struct WatchOptions {
  std::string run;
  std::string svg;
  bool follow = false;
  bool log_scale = false;
  double seconds = 2;
};

void show(const WatchOptions& options) {
  const LossHistory history = read_loss_history(options.run + "/metrics.jsonl");
  const Scale scale = options.log_scale ? Scale::log : Scale::linear;
  if (!options.svg.empty()) {
    const std::string name =
        std::filesystem::path(options.run).lexically_normal().filename().string();
    write_file(options.svg, draw_svg(history, "Loss of " + name, scale));
  }
  if (options.follow) fmt::print("\033[H\033[J");
  fmt::print("{}", draw_text(history, terminal_width(), 18, scale));
  if (!history.train.empty()) {
    fmt::print("step {:.0f}: loss {:.4f}", history.train.back().x, history.train.back().y);
  }
  if (!history.val.empty()) {
    fmt::print(", validation loss {:.4f} at step {:.0f}", history.val.back().y,
               history.val.back().x);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run_watch(const WatchOptions& options) {
  show(options);
  while (options.follow) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    show(options);
  }
}

}  // namespace

void add_watch(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* const command = app.add_subcommand("watch", "Show the loss curve of a run");
  command->add_option("RUN", options->run, "Run directory")->required();
  command->add_option("--svg", options->svg, "Also write the curve as an SVG picture");
  command->add_flag("--log", options->log_scale, "Logarithmic loss axis");
  command->add_flag("--follow", options->follow, "Draw again until interrupted");
  command->add_option("--every", options->seconds, "Seconds between drawings with --follow")
      ->check(CLI::Range(0.1, 3600.0));
  command->footer("Example:\n  belay watch runs/first --svg loss.svg");
  command->callback([options] { run_watch(*options); });
}

}  // namespace belay
