#include "belay/cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "belay/base/log.h"

namespace belay {

int report(const Error& error) {
  const char* const label = isatty(STDERR_FILENO) != 0 ? "\033[1;31merror:\033[0m" : "error:";
  const std::string_view message = error.what();
  std::fflush(stdout);
  // Where there is nothing to say, or nothing to be said, another rank says it.
  if (!message.empty() && log::enabled(log::Level::error))
    fmt::print(stderr, "belay: {} {}\n", label, message);
  if (!message.empty()) log::write_to_file(log::Level::error, message);
  return static_cast<int>(error.code());
}

void as_rank(const comm::WorldOptions& options, const std::function<void(comm::World&)>& body) {
  const std::unique_ptr<comm::World> world = comm::World::join(options);
  try {
    body(*world);
  } catch (...) {
    const Error error = current_error();
    const bool first = world->transport().raise(
        fmt::format("rank {}: {}", world->rank(), error.what()), error.code());
    // What is wrong with a command is as wrong on every rank.
    if (first || error.code() != ExitCode::usage) report(error);
    throw Error(error.code(), "");
  }
}

}  // namespace belay
