#pragma once
// parallel_for: the one place where threads are used for computing. Work is cut into `pieces`
// whose number and size never depend on the thread count, so results do not either.

#include <cstdint>
#include <type_traits>

namespace belay {

int thread_count();
// Sets the number of compute threads (default: OMP_NUM_THREADS, else all cores).
void set_thread_count(int threads);

// Of the calling thread inside parallel_for, in [0, thread_count()); 0 outside. For scratch only:
// which thread runs which piece varies.
int thread_index();

namespace detail {
void parallel_run(std::int64_t pieces, void (*body)(void*, std::int64_t), void* context);
}

// Calls body(i) for i in [0, pieces), in any order, on all threads. The body must not throw.
// Allocates nothing. Nested calls run serially.
template <class Body>
void parallel_for(std::int64_t pieces, Body&& body) {
  detail::parallel_run(
      pieces,
      [](void* context, std::int64_t index) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(index);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Number of pieces of at most `grain` items.
constexpr std::int64_t pieces_of(std::int64_t items, std::int64_t grain) {
  return (items + grain - 1) / grain;
}

}  // namespace belay
