#include "belay/train/sharded_source.h"

#include <array>
#include <exception>

#include "belay/base/error.h"
#include "belay/train/resume.h"

namespace belay {
namespace {

using State = ParameterStore::State;

// What the first rank asks for next; none: that was all.
struct Request {
  int state = -1;
  int parameter = 0;

  [[nodiscard]] bool none() const { return state < 0; }
};

Request exchange(const RankGroup& ranks, const Request& request) {
  std::array<std::int32_t, 2> words = {request.state, request.parameter};
  ranks.communicator()->broadcast(words.data(), words.data(), std::ssize(words), DType::i32, 0);
  return {words[0], words[1]};
}

// Until the first rank has all that it wants.
void serve(const RankGroup& ranks, ShardedState& sharded, Lane& lane) {
  while (true) {
    const Request request = exchange(ranks, {});
    if (request.none()) return;
    sharded.collect(lane, static_cast<State>(request.state), request.parameter, {});
  }
}

}  // namespace

void save_together(const RankGroup& ranks, ShardedState* sharded, Program& program,
                   const std::function<void(const SnapshotSource&)>& body) {
  std::exception_ptr failure;
  if (sharded == nullptr) {
    return ranks.together([&] {
      if (ranks.first()) body(snapshot_source(program));
    });
  }
  Lane& lane = program.lane();
  if (ranks.first()) {
    const auto reader = [&](State state) {
      return [&, state](int index, std::span<float> dst) {
        exchange(ranks, {static_cast<int>(state), index});
        sharded->collect(lane, state, index, dst);
      };
    };
    try {
      body({reader(State::masters), reader(State::m), reader(State::v)});
    } catch (...) {
      // Whatever it is, the others wait for requests; but not where communication is what failed.
      const Error error = current_error();
      if (error.code() == ExitCode::communication) throw;
      failure = std::make_exception_ptr(error);
    }
    exchange(ranks, {});
  } else {
    serve(ranks, *sharded, lane);
  }
  ranks.together([&] {
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace belay
