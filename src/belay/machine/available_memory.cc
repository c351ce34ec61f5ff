#include "belay/machine/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "belay/base/error.h"

namespace belay {
namespace {

// The number a file starts with; nothing for a missing file or "max".
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The number behind `key` in a file of "key number" lines.
std::size_t entry_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::string rest;
  while (file >> name) {
    std::size_t value = 0;
    if (name == key && file >> value) return value;
    std::getline(file, rest);
  }
  return 0;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cached;  // in memory.stat
};

constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file"};
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file"};

// The least that the groups from `path` ("/a/b") up to the mount at `mount` leave free.
std::size_t free_in_groups(const std::string& mount, std::string path, const GroupFiles& files) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (;;) {
    const std::string group = mount + path;
    const auto limit = number_in(group + files.limit);
    const auto usage = number_in(group + files.usage);
    if (limit && usage) {
      const std::size_t held =
          *usage - std::min(*usage, entry_of(group + "/memory.stat", files.cached));
      least = std::min(least, *limit - std::min(*limit, held));
    }
    if (path.empty()) return least;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::size_t available_memory(const std::string& root) {
  const std::size_t kilobytes = entry_of(root + "/proc/meminfo", "MemAvailable:");
  std::size_t least = kilobytes == 0 ? std::numeric_limits<std::size_t>::max() : kilobytes * 1024;
  // Lines "ID:CONTROLLERS:PATH"; version 2 names no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/" || path.empty() || path.front() != '/') path.clear();
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers == ",,") least = std::min(least, free_in_groups(mount, path, kVersion2));
    if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, free_in_groups(mount + "/memory", path, kVersion1));
    }
  }
  return least == std::numeric_limits<std::size_t>::max() ? 0 : least;
}

void require_memory(std::size_t needed, const std::string& what, const std::string& advice) {
  const std::size_t available = available_memory();
  if (available == 0 || needed <= available) return;
  const auto gigabytes = [](std::size_t bytes) { return static_cast<double>(bytes) * 1e-9; };
  fail(ExitCode::capacity, "{} needs {:.2f} GB but {:.2f} GB are free, {:.2f} GB too little; {}",
       what, gigabytes(needed), gigabytes(available), gigabytes(needed - available), advice);
}

}  // namespace belay
