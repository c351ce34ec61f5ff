#include "belay/comm/progress_thread.h"

#include <chrono>

#include "belay/comm/short_turns.h"

namespace belay::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

ProgressThread::ProgressThread(Communicator& comm, int capacity)
    : comm_(comm), jobs_(static_cast<std::size_t>(capacity)), thread_([this] { work(); }) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_worker_.notify_all();
  thread_.join();
}

ProgressThread::Ticket ProgressThread::start_all_reduce(const void* input, void* output,
                                                        std::int64_t count, DType dtype,
                                                        ReduceOp op) {
  Job job{.collective = Collective::all_reduce, .op = op, .dtype = dtype, .input = input};
  job.output = output;
  job.count = count;
  return push(job);
}

ProgressThread::Ticket ProgressThread::start_reduce_scatter(const void* input, void* output,
                                                            std::span<const std::int64_t> bounds,
                                                            DType dtype, ReduceOp op) {
  Job job{.collective = Collective::reduce_scatter, .op = op, .dtype = dtype, .input = input};
  job.output = output;
  job.bounds = bounds;
  return push(job);
}

ProgressThread::Ticket ProgressThread::start_all_gather(const void* input, void* output,
                                                        std::span<const std::int64_t> bounds,
                                                        DType dtype) {
  Job job{.collective = Collective::all_gather, .dtype = dtype, .input = input};
  job.output = output;
  job.bounds = bounds;
  return push(job);
}

ProgressThread::Ticket ProgressThread::push(const Job& job) {
  Ticket ticket = 0;
  {
    std::unique_lock lock(mutex_);
    wake_waiters_.wait(lock, [&] { return error_ || started_ - finished_ < jobs_.size(); });
    if (error_) std::rethrow_exception(error_);
    jobs_[started_ % jobs_.size()] = job;
    ticket = ++started_;
  }
  wake_worker_.notify_one();
  return ticket;
}

void ProgressThread::wait(Ticket ticket) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  wake_waiters_.wait(lock, [&] { return error_ || finished_ >= ticket; });
  times_.waited_s += seconds_since(begin);
  if (finished_ < ticket) std::rethrow_exception(error_);
}

ProgressThread::Ticket ProgressThread::start(const std::function<void(Communicator&)>& body) {
  Job job;
  job.body = &body;
  return push(job);
}

ProgressThread::Times ProgressThread::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

void ProgressThread::work() {
  ask_for_short_turns();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_worker_.wait(lock, [&] { return stopping_ || started_ > finished_; });
    if (started_ == finished_) return;
    const Job job = jobs_[finished_ % jobs_.size()];
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    std::exception_ptr error;
    const bool patient = comm_.is_patient();
    comm_.set_patient(true);
    try {
      carry_out(job);
    } catch (...) {
      error = std::current_exception();
    }
    comm_.set_patient(patient);
    const double seconds = seconds_since(begin);
    lock.lock();
    times_.busy_s += seconds;
    if (error) {
      // Nothing after a failed call can be right; whoever waits learns why.
      error_ = error;
      wake_waiters_.notify_all();
      return;
    }
    ++finished_;
    wake_waiters_.notify_all();
  }
}

void ProgressThread::carry_out(const Job& job) {
  if (job.body != nullptr) {
    (*job.body)(comm_);
    return;
  }
  switch (job.collective) {
    case Collective::reduce_scatter:
      return comm_.reduce_scatter(job.input, job.output, job.bounds, job.dtype, job.op);
    case Collective::all_gather:
      return comm_.all_gather(job.input, job.output, job.bounds, job.dtype);
    default:
      return comm_.all_reduce(job.input, job.output, job.count, job.dtype, job.op);
  }
}

}  // namespace belay::comm
