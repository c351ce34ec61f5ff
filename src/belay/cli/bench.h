#pragma once
// The subcommands of `belay bench`, one file each.

#include <cstdint>
#include <string>

#include "belay/base/dtype.h"

namespace CLI {
class App;
}

namespace belay {

void add_bench_gemm(CLI::App& bench);
void add_bench_train(CLI::App& bench);
void add_bench_data(CLI::App& bench);
void add_bench_padding(CLI::App& bench);
void add_bench_ops(CLI::App& bench);
void add_bench_memory(CLI::App& bench);
void add_bench_stress(CLI::App& bench);
void add_bench_collectives(CLI::App& bench);
void add_bench_overlap(CLI::App& bench);
void add_bench_compression(CLI::App& bench);
void add_bench_links(CLI::App& bench);

struct CharacteristicsOptions {
  std::string model;
  std::int64_t batch = 0;
  std::int64_t seq_len = 0;
  DType dtype = DType::f32;
  bool json = false;
};
// Part of `bench ops`.
void bench_characteristics(const CharacteristicsOptions& options);

}  // namespace belay
