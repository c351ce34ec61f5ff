#include "belay/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

namespace belay::log {
namespace {

struct Logger {
  std::shared_ptr<spdlog::logger> logger;
  std::string topics;
  std::atomic<void (*)()> before_write = nullptr;

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
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    sinks.push_back(file);
    instance().logger->flush_on(spdlog::level::info);
  }
  set_logger_level();
}

void write_to_file(Level level, std::string_view message) {
  const auto& sinks = instance().logger->sinks();
  if (sinks.size() < 2) return;
  sinks.back()->log(spdlog::details::log_msg(
      "belay", translate(level), spdlog::string_view_t(message.data(), message.size())));
  sinks.back()->flush();
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
  const auto translated = translate(level);
  if (!target.logger->should_log(translated)) return;
  if (void (*const hook)() = target.before_write; hook != nullptr && enabled(level)) hook();
  target.logger->log(translated, "{}", message);
}

}  // namespace belay::log
