#pragma once
// run_ordered: one producer, many workers, results consumed in the order of production on the
// calling thread. At most `depth` items exist at a time, and their buffers are used again, so
// memory does not depend on the amount of work. What is consumed does not depend on the worker
// count.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "belay/base/check.h"

namespace belay::data {

// produce(In&) -> bool fills an item, false at the end; transform(In&, Out&) runs on the workers;
// consume(Out&) on the caller. Items come back used, their old content still in them. An exception
// of any of the three ends the run and is rethrown, the earliest item's first.
template <class In, class Out, class Produce, class Transform, class Consume>
void run_ordered(int workers, int depth, Produce&& produce, Transform&& transform,
                 Consume&& consume) {
  BELAY_CHECK(workers > 0 && depth > 0);
  enum class Stage { free, produced, taken, done };
  struct Slot {
    In in;
    Out out;
    Stage stage = Stage::free;
    std::exception_ptr error;
  };
  std::vector<Slot> slots(static_cast<std::size_t>(depth));
  const auto slot_of = [&](std::int64_t number) -> Slot& {
    return slots[static_cast<std::size_t>(number % depth)];
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t produced = 0;
  std::int64_t taken = 0;
  bool finished = false;  // no more items will be produced
  bool stopping = false;

  const auto produce_all = [&] {
    for (;;) {
      std::unique_lock lock(mutex);
      Slot& slot = slot_of(produced);
      changed.wait(lock, [&] { return stopping || slot.stage == Stage::free; });
      if (stopping) return;
      lock.unlock();
      bool more = false;
      std::exception_ptr error;
      try {
        more = produce(slot.in);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      // A failed production is an item of its own, so that what came before it is consumed first.
      slot.error = error;
      if (error) slot.stage = Stage::done;
      if (more) slot.stage = Stage::produced;
      if (more || error) ++produced;
      finished = !more;
      changed.notify_all();
      if (finished) return;
    }
  };
  const auto transform_all = [&] {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] {
        return stopping || (taken < produced ? slot_of(taken).stage != Stage::free : finished);
      });
      if (stopping || taken == produced) return;
      Slot& slot = slot_of(taken++);
      if (slot.stage != Stage::produced) continue;
      slot.stage = Stage::taken;
      lock.unlock();
      std::exception_ptr error;
      try {
        transform(slot.in, slot.out);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot.error = error;
      slot.stage = Stage::done;
      changed.notify_all();
    }
  };

  std::vector<std::thread> threads;
  threads.emplace_back(produce_all);
  for (int i = 0; i < workers; ++i) threads.emplace_back(transform_all);
  std::exception_ptr error;
  for (std::int64_t number = 0; !error; ++number) {
    std::unique_lock lock(mutex);
    Slot& slot = slot_of(number);
    changed.wait(lock, [&] { return number < produced ? slot.stage == Stage::done : finished; });
    if (number == produced) break;
    error = slot.error;
    lock.unlock();
    if (error) break;
    try {
      consume(slot.out);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.stage = Stage::free;
    changed.notify_all();
  }
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace belay::data
