#pragma once
// The subcommands of `belay bench`, one file each.

namespace CLI {
class App;
}

namespace belay {

void add_bench_gemm(CLI::App& bench);
void add_bench_train(CLI::App& bench);
void add_bench_data(CLI::App& bench);
void add_bench_ops(CLI::App& bench);

}  // namespace belay
