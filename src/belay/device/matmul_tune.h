#pragma once
// Measures which candidate is fastest for a matrix product, on private operands, and remembers it.
// Every candidate's result is checked on sampled entries first; a wrong one is never chosen.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belay/device/device.h"
#include "belay/device/matmul_choice.h"

namespace belay {

struct TuneOptions {
  double seconds =
      0.3;          // soft bound per shape; every candidate runs at least once whatever it says
  int repeats = 7;  // timed rounds at most
  // Taken when no more than `preference` slower than the fastest: our own kernel allocates nothing
  // and gives the same bits for any number of threads.
  std::string preferred = "belay";
  double preference = 0.005;
  // Only candidates whose name begins like this take part (and the reference); empty: all.
  std::string only;
  // Counts the calling thread's processor time instead of elapsed time: steadier than elapsed time
  // on a busy machine, and meaningful with one thread only.
  bool processor_time = false;
};

struct MatmulTiming {
  std::string kernel;
  double best_s = 0;    // seconds of one call; 0 when it did not run
  double median_s = 0;  // likewise
  std::string problem;  // why it does not take part: what it declines, or that its result is wrong
};

// One entry per candidate of the device, in the device's order. The reference takes part only
// where nothing else does. Throws Error(capacity) when the operands do not fit.
std::vector<MatmulTiming> time_matmul(Device& device, const MatmulKey& key,
                                      const TuneOptions& options);

// The choice that timings lead to. Throws Error(failure) when no candidate was right.
MatmulChoice choose_matmul(const MatmulKey& key, std::span<const MatmulTiming> timings,
                           const TuneOptions& options);

MatmulChoice tune_matmul(Device& device, const MatmulKey& key, const TuneOptions& options);

struct TuneProgress {
  std::size_t done = 0;  // shapes, this one included
  std::size_t total = 0;
  MatmulKey key;
  MatmulChoice choice;
  bool measured = false;  // false: the cache had it
};
using TuneCallback = std::function<void(const TuneProgress&)>;

// Fills device.matmul_choices() for all keys: from the cache file where it has an entry for this
// machine, else by measurement, which is then added to the file. A damaged cache is reported and
// rebuilt; one that cannot be written is reported and left alone. An empty path: no cache. A device
// with a single candidate has nothing to choose and is left as it is.
void tune_matmuls(Device& device, std::span<const MatmulKey> keys, const std::string& cache_path,
                  const TuneOptions& options = {}, const TuneCallback& progress = nullptr);

}  // namespace belay
