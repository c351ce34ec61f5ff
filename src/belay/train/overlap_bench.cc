#include "belay/train/overlap_bench.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "belay/base/error.h"
#include "belay/base/median.h"
#include "belay/base/parallel.h"
#include "belay/base/philox.h"
#include "belay/base/stopwatch.h"
#include "belay/comm/fault_transport.h"
#include "belay/parallel/host_place.h"
#include "belay/parallel/rank_threads.h"
#include "belay/precision/arithmetic_config.h"
#include "belay/train/planning.h"
#include "belay/train/step.h"

namespace belay {
namespace {

using Clock = std::chrono::steady_clock;

struct Mode {
  const char* name;
  bool overlap;
  bool pipelined;
};
constexpr Mode kModes[] = {{"after backward", false, false},
                           {"during the last backward", true, false},
                           {"pipelined micro-batches", true, true}};

struct Times {
  double step_ms = 0;
  double comm_ms = 0;
  double waited_ms = 0;
};

// Noise can make a step faster than computing alone, or slower than both in turn.
double share_hidden(double exposed_ms, double comm_ms) {
  return std::clamp(1 - exposed_ms / comm_ms, 0.0, 1.0);
}

struct RandomBatch {
  std::vector<std::int32_t> tokens, targets, positions, doc_begin;

  RandomBatch(std::int64_t rows, std::int64_t seq_len, std::int64_t vocab) {
    for (std::int64_t i = 0; i < rows * seq_len; ++i) {
      const PhiloxBlock words = random_block({1, 0, 7}, static_cast<std::uint64_t>(i));
      tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(vocab)));
      targets.push_back(static_cast<std::int32_t>(words[1] % static_cast<std::uint64_t>(vocab)));
      positions.push_back(static_cast<std::int32_t>(i % seq_len));
      doc_begin.push_back(0);
    }
  }
};

ProgramConfig program_of(const OverlapBench& options) {
  ProgramConfig config;
  config.model = in_precision(preset_config(options.model), DType::f32);
  config.model.seq_len = std::max(config.model.seq_len, options.seq_len);
  config.micro_batch = options.rows;
  config.seq_len = options.seq_len;
  return config;
}

// One rank of the benchmark.
class Rank {
 public:
  Rank(comm::FaultTransport& links, const OverlapBench& options)
      : links_(links),
        options_(options),
        communicator_(links, {.timeout_s = 120}),
        config_(program_of(options)),
        table_(make_parameter_table(config_.model)),
        device_(make_device("cpu")),
        batch_(options.rows, options.seq_len, config_.model.vocab),
        share_{communicator_.rank(), communicator_.size(), options.rows,
               options.micro_batches * communicator_.size()} {
    PlanningOptions planning;
    planning.matmul = options.matmul;
    planning.calibrate = false;
    program_ = prepare_program(*device_, table_, config_, planning).program;
    program_->parameters().initialise(program_->lane(), 1);
    optimizer_.schedule = ScheduleKind::constant;
    optimizer_.lr = 1e-4;
  }

  OverlapReport run() {
    OverlapReport report;
    report.ranks = communicator_.size();
    report.parameters = table_.parameter_count();
    const double traffic = sum_traffic(report.parameters, report.ranks);
    step(nullptr);  // warm-up
    double compute_ms = step(nullptr).step_ms;
    for (int i = 0; i < 4; ++i) compute_ms = std::min(compute_ms, step(nullptr).step_ms);
    for (const Mode& mode : kModes) {
      // A single micro-batch has no next one that could hide it.
      if (mode.pipelined && share_.rounds() == 1) continue;
      report.rows.emplace_back();
      OverlapRow& row = report.rows.back();
      row.mode = mode.name;
      row.bytes = traffic * (mode.pipelined ? static_cast<double>(options_.micro_batches) : 1.0);
      exchanges_.push_back(make_exchange(mode));
      // The links carry the step's bytes in the time that the step computes.
      row.bandwidth = row.bytes / (compute_ms * 1e-3);
      set_bandwidth(row.bandwidth);
      step(exchanges_.back().get());  // warm-up
      set_bandwidth(0);
    }
    measure(report);
    return report;
  }

 private:
  std::unique_ptr<GradientExchange> make_exchange(const Mode& mode) {
    ExchangeOptions exchange{static_cast<std::size_t>(options_.bucket_mb * 1e6), options_.buckets,
                             mode.overlap};
    if (mode.pipelined) exchange.pipeline_depth = options_.depth;
    const ParameterStore& store = program_->parameters();
    return std::make_unique<GradientExchange>(store, communicator_, exchange, nullptr,
                                              make_round_sum(*device_, store, exchange));
  }

  void set_bandwidth(double bandwidth) {
    links_.set_script(comm::FaultScript(
        bandwidth > 0 ? fmt::format("all bandwidth={:.0f}", bandwidth) : "", communicator_.size()));
  }

  // Null: without exchange.
  Times step(GradientExchange* exchange) {
    program_->set_exchange(exchange);
    Stepper stepper(*program_, optimizer_, 1'000'000, share_);
    if (exchange != nullptr) exchange->reset_times();
    communicator_.barrier();
    const Clock::time_point begin = Clock::now();
    const MicroBatch micro{{options_.rows, batch_.tokens.data(), batch_.targets.data(),
                            batch_.positions.data(), batch_.doc_begin.data()},
                           options_.rows * options_.seq_len};
    ++steps_;
    if (stepper.run(steps_, steps_, [&] { return micro; }).outcome != StepOutcome::updated) {
      fail(ExitCode::numerics, "step {} of the benchmark did not update", steps_);
    }
    Times times;
    times.step_ms = ms_since(begin);
    if (exchange != nullptr) {
      times.comm_ms = exchange->times().busy_ms;
      times.waited_ms = exchange->times().exposed_ms;
    }
    std::array<double, 3> slowest{times.step_ms, times.comm_ms, times.waited_ms};
    communicator_.all_reduce(slowest.data(), slowest.data(), std::ssize(slowest), DType::f64,
                             comm::ReduceOp::max);
    return {slowest[0], slowest[1], slowest[2]};
  }

  // In alternation, so that all see the same machine.
  void measure(OverlapReport& report) {
    std::vector<double> compute;
    std::vector<std::vector<Times>> times(report.rows.size());
    for (int i = 0; i < options_.repetitions; ++i) {
      compute.push_back(step(nullptr).step_ms);
      for (std::size_t m = 0; m < report.rows.size(); ++m) {
        set_bandwidth(report.rows[m].bandwidth);
        times[m].push_back(step(exchanges_[m].get()));
        set_bandwidth(0);
      }
    }
    for (std::size_t m = 0; m < report.rows.size(); ++m) {
      OverlapRow& row = report.rows[m];
      const auto middle = [&](double Times::*what) {
        std::vector<double> values;
        for (const Times& each : times[m]) values.push_back(each.*what);
        return median(std::move(values));
      };
      row.compute_ms = median(compute);
      row.step_ms = middle(&Times::step_ms);
      row.comm_ms = middle(&Times::comm_ms);
      row.waited_ms = middle(&Times::waited_ms);
      row.exposed_ms = row.step_ms - row.compute_ms;
      row.hidden = share_hidden(row.exposed_ms, row.comm_ms);
      for (const Times& each : times[m]) {
        row.hidden_of_each.push_back(share_hidden(each.step_ms - row.compute_ms, each.comm_ms));
      }
    }
  }

  comm::FaultTransport& links_;
  const OverlapBench& options_;
  comm::Communicator communicator_;
  ProgramConfig config_;
  ParameterTable table_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Program> program_;
  RandomBatch batch_;
  BatchShare share_;
  OptimizerConfig optimizer_;
  std::vector<std::unique_ptr<GradientExchange>> exchanges_;
  std::int64_t steps_ = 0;
};

}  // namespace

OverlapReport bench_overlap(comm::World& world, int threads, const OverlapBench& options) {
  if (world.size() > 1) {
    const int here = place_on_host(world.host_of(), world.rank()).ranks;
    set_thread_count(static_cast<int>(std::max<long>(1, sysconf(_SC_NPROCESSORS_ONLN) / here)));
    comm::FaultTransport links(world.transport(), {});
    return Rank(links, options).run();
  }
  set_thread_count(1);
  OverlapReport report;
  run_as_threads(threads, [&](comm::Transport& transport) {
    comm::FaultTransport links(transport, {}, comm::RankIs::thread);
    OverlapReport mine = Rank(links, options).run();
    if (transport.rank() == 0) report = std::move(mine);
  });
  return report;
}

}  // namespace belay
