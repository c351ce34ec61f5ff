#include "belay/base/parallel.h"

#include <omp.h>

namespace belay {

int thread_count() {
  return omp_get_max_threads();
}

void set_thread_count(int threads) {
  omp_set_num_threads(threads);
}

int thread_index() {
  return omp_get_thread_num();
}

namespace detail {

void parallel_run(std::int64_t pieces, void (*body)(void*, std::int64_t), void* context) {
  if (pieces <= 1 || omp_in_parallel() != 0) {
    for (std::int64_t index = 0; index < pieces; ++index) body(context, index);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t index = 0; index < pieces; ++index) body(context, index);
}

}  // namespace detail
}  // namespace belay
