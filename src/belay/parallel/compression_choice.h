#pragma once
// Which tensors are worth compressing: those for which a measurement says that it takes less time
// to compress, exchange and unpack them than to sum them as they are.

#include <string>
#include <vector>

#include "belay/parallel/compressed_reducer.h"

namespace belay {

// Seconds for a tensor by itself, of the slowest rank.
struct CompressionTiming {
  std::int64_t elements = 0;
  double dense_s = 0;
  double compressed_s = 0;
};

// Times both ways, over the communicator as it is, from 4096 elements up to the largest bucket or
// 16 MiB. A collective; all ranks get the same numbers.
std::vector<CompressionTiming> time_compression(comm::Communicator& communicator,
                                                std::int64_t bucket_elements,
                                                const CompressionOptions& options);

// For any size: between those timed along a power law, beyond them in proportion.
CompressionTiming predict_compression(const std::vector<CompressionTiming>& timings,
                                      std::int64_t elements);

struct CompressionChoice {
  std::vector<bool> compressed;  // of each parameter
  std::string why;               // one line
  bool measured = false;         // now, or by the run that goes on
};

// As the settings say; a collective. Where that takes measurements, a run that goes on keeps
// `before`, what it measured under the same settings; null: nothing.
CompressionChoice choose_compression(comm::Communicator& communicator, const ParameterTable& table,
                                     std::int64_t bucket_elements, const comm::CommConfig& config,
                                     const std::vector<bool>* before = nullptr);

}  // namespace belay
