#pragma once
// Collectives that run beside computing: a thread makes the calls, one after the other, in the
// order in which they are started. All ranks start the same calls in the same order. Starting and
// waiting allocate nothing.
//
// One thread uses the communicator at a time. While a started call is not waited for that is this
// object's; else whoever waited may make calls itself, as there is nothing under way. Calls of the
// thread are patient (Communicator::set_patient), those of others are as they were.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "belay/comm/communicator.h"

namespace belay::comm {

class ProgressThread {
 public:
  // Of a started call; they count up from 1.
  using Ticket = std::uint64_t;

  // Calls that may be under way at once; starting one more waits for the oldest.
  explicit ProgressThread(Communicator& comm, int capacity = 256);
  // Waits for all calls.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // As Communicator's. The buffers are the thread's until the call is done. bounds must live as
  // long. An error of a call is thrown by whoever waits or starts next, and again after that.
  Ticket start_all_reduce(const void* input, void* output, std::int64_t count, DType dtype,
                          ReduceOp op);
  Ticket start_reduce_scatter(const void* input, void* output, std::span<const std::int64_t> bounds,
                              DType dtype, ReduceOp op);
  Ticket start_all_gather(const void* input, void* output, std::span<const std::int64_t> bounds,
                          DType dtype);

  // Several calls as one; `body` must live until it is done.
  Ticket start(const std::function<void(Communicator&)>& body);

  void wait(Ticket ticket);

  // Seconds since the start in which calls ran, and in which wait() blocked: what was not hidden.
  struct Times {
    double busy_s = 0;
    double waited_s = 0;
  };
  [[nodiscard]] Times times();

 private:
  struct Job {
    Collective collective = Collective::barrier;
    ReduceOp op = ReduceOp::sum;
    DType dtype = DType::f32;
    const void* input = nullptr;
    void* output = nullptr;
    std::int64_t count = 0;
    std::span<const std::int64_t> bounds{};
    const std::function<void(Communicator&)>* body = nullptr;
  };

  Ticket push(const Job& job);
  void work();
  void carry_out(const Job& job);

  Communicator& comm_;
  std::vector<Job> jobs_;  // a ring
  std::mutex mutex_;
  std::condition_variable wake_worker_;
  std::condition_variable wake_waiters_;
  Ticket started_ = 0;
  Ticket finished_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  Times times_;
  std::thread thread_;
};

}  // namespace belay::comm
