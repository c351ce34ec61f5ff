#pragma once
// For tests: ranks as threads.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/thread_transport.h"

namespace belay::comm {

// Runs body on every rank and returns each one's error message, empty if there was none. Errors
// must carry ExitCode::communication. `inject`: faults, as FaultScript reads them.
inline std::vector<std::string> run_ranks(int ranks, const CommunicatorOptions& options,
                                          const std::function<void(Communicator&)>& body,
                                          const std::string& inject = {}) {
  const FaultScript script(inject, ranks);
  ThreadGroup group(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        FaultTransport faults(group.transport(rank), script, RankIs::thread);
        Transport& transport = group.transport(rank);
        Communicator communicator(script.empty() ? transport : faults, options);
        body(communicator);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::communication) << error.what();
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank], "") << "rank " << rank;
  }
}

inline Chooser always(const Choice& choice) {
  return [choice](Collective, int, std::size_t) { return choice; };
}

}  // namespace belay::comm
