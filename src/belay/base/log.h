#pragma once
// The one logger. Levels: debug, info, warn, error. `-q`/`-v` on the command line set the level.
// Topics are finer: BELAY_LOG=kernels,plan turns on the named topics (read once, at start).

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace belay::log {

enum class Level { debug, info, warn, error, off };

void set_level(Level level);
[[nodiscard]] bool enabled(Level level);
// Also writes every message from info on to this file (the run directory's log.txt), whatever the
// level of the console; empty stops that.
void set_file(const std::string& path);
// Only to that file, if there is one: what the console learns by other means.
void write_to_file(Level level, std::string_view message);
// Called before each message, so that a progress bar can clear its line; null: nothing.
void set_before_write(void (*hook)());
[[nodiscard]] bool topic_enabled(std::string_view topic);
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::debug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::warn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::error, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace belay::log
