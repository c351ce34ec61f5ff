#pragma once
// Sums gradients over the ranks of a data-parallel run, while the backward pass is still under way
// (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2): gradients are packed into buckets in
// the order in which they become ready, and a thread of its own reduces each full bucket.
//
// Pipelined, it does so for every micro-batch: its buckets travel while the next ones compute, and
// their sums are added up (round_sum.h). That moves the gradients once per micro-batch instead of
// once per step.
//
// Device memory is opaque, so gradients are copied out into a bucket and back from it. A few
// buckets in turn are enough: when none is free the oldest is waited for. Nothing is allocated
// after construction.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "belay/comm/comm_config.h"
#include "belay/comm/communicator.h"
#include "belay/model/pass.h"
#include "belay/parallel/bucket_reducer.h"
#include "belay/parallel/round_sum.h"

namespace belay {

struct ExchangeOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;  // at least one element
  int buckets = 4;
  bool overlap = true;  // false: reduce only when the backward pass has ended, with as many buckets
                        // as all gradients fill
  // Micro-batches whose gradients may be under way at once, while the next one computes; 0: only
  // the sum of a step's micro-batches is exchanged. Needs overlap.
  int pipeline_depth = 0;
};

// For steps in which a rank has at most so many micro-batches.
ExchangeOptions exchange_options(const comm::CommConfig& config, std::int64_t rounds);

// Elements that a bucket holds.
std::int64_t bucket_elements(const ParameterTable& table, const ExchangeOptions& options);

// Bytes that an exchange over this table allocates, with its RoundSum.
std::size_t exchange_bytes(const ParameterTable& table, const ExchangeOptions& options);

// Null unless the options want a pipeline.
std::unique_ptr<RoundSum> make_round_sum(Device& device, const ParameterStore& store,
                                         const ExchangeOptions& options);

// Of one step.
struct ExchangeTimes {
  double busy_ms = 0;     // in collectives
  double exposed_ms = 0;  // that the computing thread waited for them
};

class GradientExchange final : public GradientListener {
 public:
  // Every rank makes one over equal tables and options, and the communicator serves nobody else
  // between the first gradient of a pass and the end of finish(). All outlive the exchange.
  // Without a reducer, buckets are summed as they are. A pipelined exchange needs `rounds`, for
  // pieces of bucket_elements().
  GradientExchange(const ParameterStore& store, comm::Communicator& communicator,
                   const ExchangeOptions& options, std::unique_ptr<BucketReducer> reducer = nullptr,
                   std::unique_ptr<RoundSum> rounds = nullptr);
  ~GradientExchange() override;

  [[nodiscard]] bool pipelined() const { return rounds_ != nullptr; }
  // Starts a pass on `lane`. `after`, if any, hears of each parameter once its gradient is the sum.
  // Pipelined, every round of a step is a pass, and gradients are zeros after all but the last.
  void begin(Lane& lane, GradientListener* after, const RoundPlace& round = {});
  void gradient_ready(int parameter) override;
  // For a rank that has no part in a pass of the others, after one that it had: announces all
  // gradients as they are, in the order of the passes.
  void announce_all();
  // Returns when every gradient announced since begin() is the sum over the ranks, and the same
  // bits on all of them; pipelined, at once but in the last round, and then they are the sums over
  // all rounds. Error(communication) from the collectives.
  void finish();

  [[nodiscard]] const ExchangeTimes& times() const { return times_; }
  void reset_times() { times_ = {}; }

 private:
  struct Bucket {
    float* memory = nullptr;
    std::int64_t used = 0;
    std::vector<BucketPiece> pieces;
    RoundPlace round{};
    bool reduced = false;
  };

  void work();
  void hand_over();
  void take_back();
  Bucket& open_bucket();

  const ParameterStore& store_;
  comm::Communicator& communicator_;
  std::unique_ptr<BucketReducer> reducer_;
  std::unique_ptr<RoundSum> rounds_;
  ExchangeOptions options_;
  std::int64_t capacity_;  // elements of a bucket
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;    // bucket that is filled now or next
  std::size_t oldest_ = 0;  // first bucket handed over and not taken back
  std::size_t held_ = 0;    // how many are handed over
  Lane* lane_ = nullptr;
  GradientListener* after_ = nullptr;
  RoundPlace round_{};
  std::vector<int> order_;  // of the announcements of the first pass
  bool first_pass_ = true;
  ExchangeTimes times_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t reduce_next_ = 0;  // bucket that the thread reduces next
  std::size_t queued_ = 0;       // how many wait for that
  bool released_ = false;        // the thread may work on what is queued
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace belay
