// belay: the command line. Registers the subcommands and turns errors into exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "belay/base/config.h"
#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/cli/commands.h"
#include "belay/cli/report.h"
#include "belay/comm/world.h"

namespace belay {
namespace {

void add_commands(CLI::App& app) {
  add_pack(app);
  add_train(app);
  add_plan(app);
  add_eval(app);
  add_generate(app);
  add_snapshot(app);
  add_watch(app);
  add_doctor(app);
  add_bench(app);
}

// The command that the user meant, for the hint under a usage error: "belay train".
std::string command_line_prefix(const CLI::App& app) {
  std::string prefix = "belay";
  for (const CLI::App* level = &app; !level->get_subcommands().empty();) {
    level = level->get_subcommands().front();
    prefix += " " + level->get_name();
  }
  return prefix;
}

// CLI11 would only say that an argument was not expected.
void refuse_unknown_command(CLI::App& app, std::string_view word) {
  if (word.empty() || word.front() == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  if (std::find(views.begin(), views.end(), word) != views.end()) return;
  const std::string_view guess = config::nearest(word, views);
  fail(ExitCode::usage, "there is no command \"{}\"; {}", word,
       guess.empty() ? fmt::format("the commands are {}", fmt::join(views, ", "))
                     : fmt::format("did you mean \"{}\"?", guess));
}

// What a program reads must be complete, or the exit code must say that it is not.
void check_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  fail(errno == ENOSPC ? ExitCode::capacity : ExitCode::data, "standard output: cannot write: {}",
       std::strerror(errno));
}

int run(int argc, char** argv) {
  CLI::App app("belay pre-trains language models.");
  app.name("belay");
  app.set_version_flag("--version", "belay " BELAY_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Examples:\n"
      "  belay train config.toml --out runs/first\n"
      "  belay COMMAND --help\n"
      "Exit codes: 0 success, 1 internal failure, 2 wrong use or configuration, 3 bad data or "
      "file,\n"
      "4 numerics, 5 communication, 6 does not fit.");

  int quiet = 0;
  int verbose = 0;
  app.add_flag("-q,--quiet", quiet, "Only warnings and errors; twice: only errors");
  app.add_flag("-v,--verbose", verbose, "Also debugging messages");
  app.parse_complete_callback([&] {
    if (verbose > 0) log::set_level(log::Level::debug);
    if (quiet > 0) log::set_level(quiet > 1 ? log::Level::error : log::Level::warn);
    // A reader that goes away ends a command quietly, as usual; it must not end hours of training.
    const auto chosen = app.get_subcommands();
    const bool training = std::any_of(chosen.begin(), chosen.end(), [](const CLI::App* command) {
      return command->get_name() == "train";
    });
    const std::string command = command_line_prefix(app);
    const bool measuring = command == "belay bench collectives" ||
                           command == "belay bench compression" || command == "belay bench links" ||
                           command == "belay bench overlap";
    if (comm::launched_ranks() > 1 && !training && !measuring) {
      fail(ExitCode::usage, "{} runs in one process; start it without mpirun", command);
    }
    std::signal(SIGPIPE, training ? SIG_IGN : SIG_DFL);
    // A file that may not grow is an error like a full disk, with a message and a clean-up.
    std::signal(SIGXFSZ, SIG_IGN);
  });
  add_commands(app);
  if (argc > 1) refuse_unknown_command(app, argv[1]);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    return report({ExitCode::usage,
                   fmt::format("{}\nSee {} --help.", error.what(), command_line_prefix(app))});
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace
}  // namespace belay

int main(int argc, char** argv) {
  try {
    const int code = belay::run(argc, argv);
    belay::check_output();
    return code;
  } catch (...) {
    return belay::report(belay::current_error());
  }
}
