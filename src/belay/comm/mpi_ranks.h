#pragma once
// For tests: this program again, as ranks under mpirun, where a test of it plays their part.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace belay::comm {

struct MpiOutcome {
  int code = -1;
  std::string output;
  double seconds = 0;
  std::string mark;  // in the environment of the ranks

  [[nodiscard]] int count(const std::string& part) const {
    int found = 0;
    for (std::size_t at = output.find(part); at != std::string::npos;
         at = output.find(part, at + 1)) {
      ++found;
    }
    return found;
  }
  // Processes of the ranks that still run.
  [[nodiscard]] std::vector<std::string> leftovers() const {
    std::vector<std::string> found;
    for (const auto& process : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(process.path() / "environ", std::ios::binary);
      const std::string environment((std::istreambuf_iterator<char>(file)), {});
      if (environment.find(mark) != std::string::npos) found.push_back(process.path());
    }
    return found;
  }
};

// Runs the test named by `filter` on every rank, with these variables; at most 60 s.
inline MpiOutcome run_under_mpi(int ranks, const std::string& filter,
                                const std::vector<std::pair<std::string, std::string>>& variables) {
  static int runs = 0;
  MpiOutcome outcome;
  outcome.mark = "BELAY_TEST_MARK=" + std::to_string(getpid()) + "." + std::to_string(++runs) + ".";
  // Variables of the tests' own run would be inherited: sharding above all.
  std::string command =
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX OMPI_ALLOW_RUN_AS_ROOT=1 "
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 " +
      outcome.mark;
  for (const auto& [name, value] : variables) command += " '" + name + "=" + value + "'";
  command += " timeout 60 mpirun --oversubscribe --bind-to none -n " + std::to_string(ranks) + " " +
             std::filesystem::read_symlink("/proc/self/exe").string() +
             " --gtest_color=no --gtest_filter=" + filter + " 2>&1";
  const auto begin = std::chrono::steady_clock::now();
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace belay::comm
