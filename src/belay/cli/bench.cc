// belay bench: measures parts of the engine on this machine.

#include "belay/cli/bench.h"

#include <CLI/CLI.hpp>

#include "belay/cli/commands.h"

namespace belay {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure parts of the engine on this machine");
  bench->require_subcommand(1);
  bench->footer("Example:\n  belay bench gemm --model gpt2-124m --dtype bf16");
  add_bench_gemm(*bench);
  add_bench_train(*bench);
  add_bench_data(*bench);
  add_bench_padding(*bench);
  add_bench_ops(*bench);
  add_bench_memory(*bench);
  add_bench_stress(*bench);
  add_bench_collectives(*bench);
  add_bench_overlap(*bench);
  add_bench_compression(*bench);
  add_bench_links(*bench);
}

}  // namespace belay
