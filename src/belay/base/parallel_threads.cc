// parallel_for over std::thread, for builds without OpenMP (ThreadSanitizer does not see through
// OpenMP's runtime). Threads wait between calls; the caller works along.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "belay/base/parallel.h"

namespace belay {
namespace {

thread_local int this_thread_index = 0;
thread_local bool inside_parallel = false;

struct Work {
  std::int64_t pieces = 0;
  void (*body)(void*, std::int64_t) = nullptr;
  void* context = nullptr;
};

class Pool {
 public:
  explicit Pool(int threads) {
    for (int index = 1; index < threads; ++index) {
      workers_.emplace_back([this, index] { serve(index); });
    }
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(const Work& work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = work;
      next_ = 0;
      busy_ = workers_.size();
      ++round_;
    }
    wake_.notify_all();
    take_pieces(work);
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void take_pieces(const Work& work) {
    inside_parallel = true;
    for (std::int64_t piece = next_++; piece < work.pieces; piece = next_++) {
      work.body(work.context, piece);
    }
    inside_parallel = false;
  }

  void serve(int index) {
    this_thread_index = index;
    std::uint64_t seen = 0;
    for (;;) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || round_ != seen; });
        if (stopping_) return;
        seen = round_;
        work = work_;
      }
      take_pieces(work);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) idle_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Work work_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool stopping_ = false;
  std::atomic<std::int64_t> next_ = 0;
  std::vector<std::thread> workers_;
};

// Several threads may call parallel_for at once (a reader beside the trainer): they take turns.
std::mutex& pool_mutex() {
  static std::mutex mutex;
  return mutex;
}

int& wanted_threads() {
  static int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return threads;
}

Pool& pool() {
  static std::unique_ptr<Pool> instance;
  if (instance == nullptr || instance->threads() != wanted_threads()) {
    instance = std::make_unique<Pool>(wanted_threads());
  }
  return *instance;
}

}  // namespace

int thread_count() {
  const std::lock_guard lock(pool_mutex());
  return wanted_threads();
}

void set_thread_count(int threads) {
  const std::lock_guard lock(pool_mutex());
  wanted_threads() = std::max(1, threads);
}

int thread_index() {
  return this_thread_index;
}

namespace detail {

void parallel_run(std::int64_t pieces, void (*body)(void*, std::int64_t), void* context) {
  if (pieces <= 1 || inside_parallel) {
    for (std::int64_t index = 0; index < pieces; ++index) body(context, index);
    return;
  }
  const std::lock_guard lock(pool_mutex());
  pool().run({pieces, body, context});
}

}  // namespace detail
}  // namespace belay
