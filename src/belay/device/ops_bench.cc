#include "belay/device/ops_bench.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "belay/device/ops_workloads.h"
#include "belay/machine/busy_clock.h"

namespace belay {
namespace {

// Calls go round operands of at least this many bytes together, so that none is still cached.
constexpr std::size_t kRingBytes = std::size_t{256} << 20;
constexpr std::size_t kArenaBytes = std::size_t{640} << 20;
constexpr std::size_t kMaxSets = 64;
// A side runs at least so often and so long, except that long calls stop at kMaxSeconds.
constexpr int kMinCalls = 12;
constexpr int kMinLongCalls = 3;
constexpr double kMinSeconds = 0.3;
constexpr double kMaxSeconds = 1.5;

// The best of calls in turn, after one round that is not timed.
double best_seconds(const std::vector<std::function<void()>>& ring) {
  for (const auto& run : ring) run();
  double best = std::numeric_limits<double>::infinity();
  const double begin = busy_seconds();
  const auto enough = [&](int calls) {
    const double spent = busy_seconds() - begin;
    return calls >= kMinCalls ? spent >= kMinSeconds
                              : calls >= kMinLongCalls && spent >= kMaxSeconds;
  };
  for (int i = 0; !enough(i); ++i) {
    const double start = busy_seconds();
    ring[static_cast<std::size_t>(i) % ring.size()]();
    best = std::min(best, busy_seconds() - start);
  }
  return best;
}

// What the compositions of one workload need, and the compositions.
struct PlainRing {
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Arena> arena;
  std::vector<plain::Composition> compositions;
};

// Of as many sets of operands as it takes to leave the caches; empty where the operator is a plain
// one itself.
PlainRing compose_ring(Device& device, Lane& lane, const std::vector<BenchJob>& jobs,
                       std::size_t set_bytes) {
  PlainRing ring;
  // Composing touches no memory: addresses that are nowhere tell its size.
  Arena nowhere("size of a composition", reinterpret_cast<void*>(std::uintptr_t{1} << 44),
                std::size_t{1} << 61);
  if (!jobs.front().plain({lane, nowhere}).run) return ring;
  const std::size_t bytes = nowhere.mark();
  const std::size_t wanted = std::max<std::size_t>(1, kRingBytes / (set_bytes + bytes));
  const std::size_t sets = std::min(wanted, jobs.size());
  ring.memory = device.allocate(sets * bytes, "plain operators");
  ring.arena = std::make_unique<Arena>("plain operators", ring.memory->address(), sets * bytes);
  for (std::size_t i = 0; i < sets; ++i) {
    ring.compositions.push_back(jobs[i].plain({lane, *ring.arena}));
    if (ring.compositions.back().prepare) ring.compositions.back().prepare();
  }
  return ring;
}

void time_plain(Device& device, Lane& lane, const std::vector<BenchJob>& jobs,
                std::size_t set_bytes, OpTiming& timing) {
  const PlainRing ring = compose_ring(device, lane, jobs, set_bytes);
  if (ring.compositions.empty()) return;
  std::vector<std::function<void()>> runs;
  for (const plain::Composition& composition : ring.compositions) runs.push_back(composition.run);
  timing.plain_seconds = best_seconds(runs);
  const plain::Composition& first = ring.compositions.front();
  timing.plain_peak_bytes = first.kept_bytes + first.scratch_bytes;
}

void set_bound(OpTiming& timing, const MachineRates& rates) {
  const double flops_per_s = timing.dtype == DType::bf16 && rates.gemm_bf16_flops_per_s > 0
                                 ? rates.gemm_bf16_flops_per_s
                                 : rates.gemm_f32_flops_per_s;
  const double memory = timing.cost.bytes / rates.memory_bytes_per_s;
  const double compute = timing.cost.flops / flops_per_s;
  timing.memory_bound = memory >= compute;
  timing.bound_seconds = std::max(memory, compute);
}

OpTiming time_workload(const BenchWorkload& workload, DType dtype, Device& device, Lane& lane,
                       Arena& arena) {
  const ArenaScope scope(arena);
  BenchOperands operands(lane, arena);
  std::vector<BenchJob> jobs;
  std::vector<std::function<void()>> runs;
  const std::size_t start = arena.mark();
  std::size_t set_bytes = 0;
  do {
    jobs.push_back(workload.prepare(operands, dtype));
    runs.push_back(jobs.back().run);
    if (set_bytes == 0) set_bytes = arena.mark() - start;
  } while (arena.mark() - start < kRingBytes && jobs.size() < kMaxSets &&
           arena.mark() + set_bytes <= arena.capacity());
  OpTiming timing;
  timing.op = workload.op;
  timing.shape = workload.shape;
  timing.dtype = dtype;
  timing.kernel = jobs.front().kernel;
  timing.cost = jobs.front().cost;
  timing.peak_bytes = jobs.front().scratch_bytes;
  timing.seconds = best_seconds(runs);
  time_plain(device, lane, jobs, set_bytes, timing);
  return timing;
}

}  // namespace

std::vector<std::string_view> benched_ops() {
  const auto device = make_device("cpu");
  std::vector<std::string_view> names;
  for (const BenchWorkload& workload : bench_workloads(*device)) {
    if (std::find(names.begin(), names.end(), workload.op) == names.end()) {
      names.push_back(workload.op);
    }
  }
  return names;
}

void bench_ops(std::string_view only, const std::vector<DType>& dtypes, const MachineRates& rates,
               const std::function<void(const OpTiming&)>& report) {
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  const auto memory = device->allocate(kArenaBytes, "operator benchmark");
  Arena arena("operator benchmark", memory->address(), kArenaBytes);
  for (const BenchWorkload& workload : bench_workloads(*device)) {
    if (!only.empty() && workload.op != only) continue;
    for (const DType dtype : dtypes) {
      if (workload.f32_only && dtype != DType::f32) continue;
      OpTiming timing = time_workload(workload, dtype, *device, *lane, arena);
      set_bound(timing, rates);
      report(timing);
    }
  }
}

}  // namespace belay
