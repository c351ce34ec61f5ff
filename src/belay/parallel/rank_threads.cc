#include "belay/parallel/rank_threads.h"

#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/thread_transport.h"

namespace belay {

void run_as_threads(int ranks, const std::function<void(comm::Transport&)>& body) {
  comm::ThreadGroup group(ranks);
  std::mutex mutex;
  std::optional<Error> failure;
  const auto is_cause = [](const Error& error) { return error.code() != ExitCode::communication; };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(group.transport(rank));
      } catch (...) {
        const Error error = current_error();
        const std::lock_guard lock(mutex);
        if (!failure || (is_cause(error) && !is_cause(*failure))) failure = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) throw Error(*failure);
}

}  // namespace belay
