#pragma once
// The ranks of a data-parallel run as the trainer sees them: the first one writes files and talks,
// and what it found out the others are told.

#include <functional>
#include <span>
#include <string>

#include "belay/base/error.h"
#include "belay/comm/communicator.h"

namespace belay {

class RankGroup {
 public:
  // Null: a run of one rank. Must outlive the group.
  explicit RankGroup(comm::Communicator* communicator) : communicator_(communicator) {}

  [[nodiscard]] int rank() const { return communicator_ == nullptr ? 0 : communicator_->rank(); }
  [[nodiscard]] int size() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  [[nodiscard]] bool first() const { return rank() == 0; }
  // Null where there is one rank: then nothing needs to be summed.
  [[nodiscard]] comm::Communicator* communicator() const {
    return size() > 1 ? communicator_ : nullptr;
  }

  // The text of the first rank, on every rank.
  [[nodiscard]] std::string share(std::string text) const;
  // Every rank runs its body, which must not call the others; where one fails, all do, with its
  // exit code. The message is that of the rank that failed, and empty on the others: it is said
  // once.
  void together(const std::function<void()>& body) const;
  // For a body that fails alike on every rank, without communication: the first one's message is
  // the one that is said.
  template <class Body>
  void alike(Body&& body) const {
    try {
      body();
    } catch (const Error& error) {
      if (first()) throw;
      throw Error(error.code(), "");
    }
  }
  // What this rank's last calls were goes to RUN/flight/rank-N.json if it ends as it should not.
  void keep_flight_records(const std::string& run) const;
  // In place: the sums over the ranks.
  void sum(std::span<double> values) const;

 private:
  comm::Communicator* communicator_;
};

}  // namespace belay
