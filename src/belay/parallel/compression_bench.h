#pragma once
// What compression costs and saves, over the ranks that mpirun started, or over threads.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belay/comm/comm_config.h"
#include "belay/comm/world.h"

namespace belay {

struct CompressionBench {
  std::string mode = "all";   // or topk, int8, topk_int8
  std::string level = "all";  // or slow
  double ratio = 0.25;
  std::int64_t min_bytes = std::int64_t{64} << 10;  // of a gradient in f32
  std::int64_t max_bytes = std::int64_t{16} << 20;
  int iterations = 9;
  int threads = 2;     // ranks, where mpirun has started none
  int domains = 1;     // that those threads are spread over
  std::string inject;  // as FaultScript takes it
};

// Of one tensor by itself; times of the slowest rank, medians.
struct CompressionRow {
  comm::Compression mode = comm::Compression::int8;
  std::int64_t bytes = 0;
  double dense_bytes = 0;  // that a rank sends
  double sent_bytes = 0;
  double dense_us = 0;
  double us = 0;
  // From the measurement that a training run makes at start.
  double predicted_dense_us = 0;
  double predicted_us = 0;
  // Of the gradient, by one processor: from values to the message and what is left, and back.
  double encode_gbps = 0;
  double decode_gbps = 0;
};

struct CompressionReport {
  int rank = 0;
  int ranks = 1;
  int group = 1;  // how many exchange compressed data
  std::vector<CompressionRow> rows;
};

// on_row is called on rank 0. Error(usage) for unknown names, and for one rank alone.
CompressionReport bench_compression(comm::World& world, const CompressionBench& options,
                                    const std::function<void(const CompressionRow&)>& on_row);

}  // namespace belay
