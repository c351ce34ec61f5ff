#include "belay/device/matmul_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"

namespace belay {
namespace {

constexpr int kFormat = 1;

// Returns an empty string on success, else what went wrong.
std::string write_atomically(const std::string& path, const std::string& text) {
  std::error_code code;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), code);
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return fmt::format("{}: {}", temporary, std::strerror(errno));
  std::size_t done = 0;
  bool good = true;
  while (good && done < text.size()) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
    good = wrote > 0 || (wrote < 0 && errno == EINTR);
  }
  good = good && ::fsync(file) == 0;
  good = ::close(file) == 0 && good;
  good = good && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (good) return {};
  std::string reason = fmt::format("{}: {}", path, std::strerror(errno));
  ::unlink(temporary.c_str());
  return reason;
}

MatmulChoice parse_choice(const nlohmann::json& entry) {
  MatmulChoice choice{entry.at("kernel").get<std::string>(), entry.at("flops_per_s").get<double>()};
  if (choice.kernel.empty() || !std::isfinite(choice.flops_per_s) || choice.flops_per_s <= 0) {
    fail(ExitCode::data, "an entry without a kernel or a rate");
  }
  return choice;
}

}  // namespace

std::string default_matmul_cache_path() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/belay/matmul.json";
  }
  const std::string home = value("HOME");
  return home.empty() ? "" : home + "/.cache/belay/matmul.json";
}

MatmulCache::Machines MatmulCache::read(const std::string& path, bool report) {
  Machines machines;
  std::ifstream file(path);
  if (!file) return machines;
  try {
    const nlohmann::json root = nlohmann::json::parse(file);
    if (root.at("format").get<int>() != kFormat) {
      fail(ExitCode::data, "format {} instead of {}", root.at("format").dump(), kFormat);
    }
    for (const auto& [identity, shapes] : root.at("machines").items()) {
      for (const auto& [text, entry] : shapes.items()) {
        machines[identity][MatmulKey::parse(text).text()] = parse_choice(entry);
      }
    }
  } catch (const std::exception& error) {
    if (report) {
      log::warn("the matrix-product cache {} is damaged and will be rebuilt: {}", path,
                error.what());
    }
    machines.clear();
  }
  return machines;
}

MatmulCache::MatmulCache(std::string path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)), machines_(read(path_, true)) {}

const MatmulChoice* MatmulCache::find(const MatmulKey& key) const {
  const auto shapes = machines_.find(identity_);
  if (shapes == machines_.end()) return nullptr;
  const auto entry = shapes->second.find(key.text());
  return entry == shapes->second.end() ? nullptr : &entry->second;
}

void MatmulCache::set(const MatmulKey& key, const MatmulChoice& choice) {
  machines_[identity_][key.text()] = choice;
}

bool MatmulCache::save() {
  if (path_.empty()) return true;
  Machines merged = read(path_, false);
  for (const auto& [identity, shapes] : machines_) {
    for (const auto& [text, choice] : shapes) merged[identity][text] = choice;
  }
  nlohmann::json root{{"format", kFormat}, {"machines", nlohmann::json::object()}};
  for (const auto& [identity, shapes] : merged) {
    for (const auto& [text, choice] : shapes) {
      root["machines"][identity][text] = {{"kernel", choice.kernel},
                                          {"flops_per_s", choice.flops_per_s}};
    }
  }
  machines_ = std::move(merged);
  const std::string problem = write_atomically(path_, root.dump(1) + "\n");
  if (!problem.empty()) log::warn("cannot keep measured matrix-product choices: {}", problem);
  return problem.empty();
}

}  // namespace belay
