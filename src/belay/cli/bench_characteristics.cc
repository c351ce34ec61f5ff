// belay bench ops --characteristics: what each operator of a model's step asks of the machine.

#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/base/parallel.h"
#include "belay/cli/bench.h"
#include "belay/cli/bench_program.h"
#include "belay/machine/bandwidth.h"
#include "belay/plan/characteristics.h"
#include "belay/train/planning.h"

namespace belay {
namespace {

Plan plan_of(const CharacteristicsOptions& options) {
  const ProgramConfig config =
      bench_program(options.model, options.batch, options.seq_len, options.dtype);
  const ParameterTable table = make_parameter_table(config.model);
  const auto device = make_device("cpu");
  PlanningOptions planning;
  planning.progress = [](const std::string& line) { log::info("{}", line); };
  return prepare_program(*device, table, config, planning).plan;
}

void print(const Characteristics& c, const Roofline& machine,
           const CharacteristicsOptions& options) {
  fmt::print(
      "{} {} x {} {}, {} threads; {:.0f} GFLOP/s, {:.1f} GB/s: they meet at {:.1f} FLOPs a byte\n",
      options.model, options.batch, options.seq_len, name_of(options.dtype), thread_count(),
      machine.flops_per_s * 1e-9, machine.bytes_per_s * 1e-9, machine.ridge());
  fmt::print("{:<20} {:<34} {:>5} {:>9} {:>8} {:>9}  {:<7} {:<6} {:>6} {:>6}\n", "op", "shape",
             "calls", "GFLOP", "MB", "FLOP/byte", "bound", "unit", "share", "of it");
  for (const OpCharacter& op : c.ops) {
    fmt::print("{:<20} {:<34} {:>5} {:>9.3f} {:>8.1f} {:>9.2f}  {:<7} {:<6} {:>5.1f}% {:>6.2f}\n",
               op.op, op.shape, op.calls, op.flops * 1e-9, op.bytes * 1e-6, op.intensity(),
               op.memory_bound(machine) ? "memory" : "compute", name_of(op.unit), op.share * 100,
               op.bound_seconds(machine) / op.seconds);
  }
  fmt::print(
      "whole step: compute density {:.2f}, memory intensity {:.2f}; units to start from: matrix "
      "{:.0f}%, vector {:.0f}%, scalar {:.0f}%\n",
      c.density, c.memory_intensity, c.units.cube * 100, c.units.vector * 100,
      c.units.scalar * 100);
}

nlohmann::ordered_json json_of(const Characteristics& c, const Roofline& machine,
                               const CharacteristicsOptions& options) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const OpCharacter& op : c.ops) {
    ops.push_back({{"op", op.op},
                   {"shape", op.shape},
                   {"calls", op.calls},
                   {"flops", op.flops},
                   {"bytes", op.bytes},
                   {"intensity", op.intensity()},
                   {"bound", op.memory_bound(machine) ? "memory" : "compute"},
                   {"unit", name_of(op.unit)},
                   {"time_us", op.seconds * 1e6},
                   {"share", op.share},
                   {"fraction_of_bound", op.bound_seconds(machine) / op.seconds}});
  }
  return {
      {"model", options.model},
      {"batch", options.batch},
      {"seq", options.seq_len},
      {"dtype", name_of(options.dtype)},
      {"threads", thread_count()},
      {"flops_per_s", machine.flops_per_s},
      {"bytes_per_s", machine.bytes_per_s},
      {"density", c.density},
      {"memory_intensity", c.memory_intensity},
      {"units", {{"matrix", c.units.cube}, {"vector", c.units.vector}, {"scalar", c.units.scalar}}},
      {"ops", ops}};
}

}  // namespace

void bench_characteristics(const CharacteristicsOptions& options) {
  const MachineRates rates = measure_rates();
  Roofline machine{rates.gemm_f32_flops_per_s, rates.memory_bytes_per_s};
  if (options.dtype == DType::bf16 && rates.gemm_bf16_flops_per_s > 0) {
    machine.flops_per_s = rates.gemm_bf16_flops_per_s;
  }
  const Characteristics c = characterise(plan_of(options), machine);
  if (options.json) {
    fmt::print("{}\n", json_of(c, machine, options).dump(2));
  } else {
    print(c, machine, options);
  }
}

}  // namespace belay
