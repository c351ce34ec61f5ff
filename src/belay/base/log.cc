#include "belay/base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "belay/base/log_repeats.h"

namespace belay::log {
namespace {

// A file starts anew at this size; two old ones are kept, log.1.txt and log.2.txt.
constexpr std::size_t kFileBytes = std::size_t{16} << 20;
constexpr std::size_t kOldFiles = 2;

struct Logger {
  std::shared_ptr<spdlog::logger> logger;
  std::string topics;
  std::atomic<void (*)()> before_write = nullptr;
  std::atomic<bool> file_failed = false;
  std::mutex repeats_mutex;
  Repeats repeats;  // of the warnings of a run

  Logger() {
    auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    console->set_pattern("%^%l%$: %v");
    logger = std::make_shared<spdlog::logger>("belay", console);
    logger->set_level(spdlog::level::info);
    console->set_level(spdlog::level::info);
    if (const char* value = std::getenv("BELAY_LOG")) topics = std::string(",") + value + ",";
  }
};

Logger& instance() {
  static Logger logger;
  return logger;
}

spdlog::level::level_enum translate(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

void log_to(spdlog::sinks::sink& sink, Level level, std::string_view message) {
  sink.log(spdlog::details::log_msg("belay", translate(level),
                                    spdlog::string_view_t(message.data(), message.size())));
  sink.flush();
}

// The first sink is the console, the second, if any, the file. The logger lets through what the
// more talkative of them wants.
void set_logger_level() {
  const auto& sinks = instance().logger->sinks();
  auto level = sinks.front()->level();
  if (sinks.size() > 1) level = std::min(level, spdlog::level::info);
  instance().logger->set_level(level);
}

}  // namespace

void set_level(Level level) {
  instance().logger->sinks().front()->set_level(translate(level));
  set_logger_level();
}

bool enabled(Level level) {
  return instance().logger->sinks().front()->should_log(translate(level));
}

void set_file(const std::string& path) {
  auto& sinks = instance().logger->sinks();
  sinks.resize(1);
  if (!path.empty()) {
    auto file = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kFileBytes, kOldFiles);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    sinks.push_back(file);
    instance().file_failed = false;
    const std::lock_guard lock(instance().repeats_mutex);
    instance().repeats = {};
  }
  set_logger_level();
}

void write_to_file(Level level, std::string_view message) {
  const auto& sinks = instance().logger->sinks();
  if (sinks.size() < 2) return;
  if (instance().file_failed) return;
  try {
    log_to(*sinks.back(), level, message);
  } catch (const std::exception& error) {
    // A run must not end because its log cannot be written.
    if (instance().file_failed.exchange(true)) return;
    log_to(*sinks.front(), Level::warn, fmt::format("log.txt ends here: {}", error.what()));
  }
}

void set_before_write(void (*hook)()) {
  instance().before_write = hook;
}

bool topic_enabled(std::string_view topic) {
  const std::string& topics = instance().topics;
  return !topics.empty() && topics.find("," + std::string(topic) + ",") != std::string::npos;
}

void write(Level level, std::string_view message) {
  Logger& target = instance();
  if (!target.logger->should_log(translate(level))) return;
  const auto to_console = [&](std::string_view text) {
    if (!enabled(level)) return;
    if (void (*const hook)() = target.before_write; hook != nullptr) hook();
    log_to(*target.logger->sinks().front(), level, text);
  };
  const bool to_file = target.logger->sinks().size() > 1;
  if (to_file) write_to_file(level, message);
  if (level != Level::warn || !to_file) return to_console(message);
  std::optional<std::string> shown;
  {
    const std::lock_guard lock(target.repeats_mutex);
    shown = target.repeats.shown(message);
  }
  if (shown) to_console(*shown);
}

}  // namespace belay::log
