#include "belay/comm/collectives_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "belay/base/error.h"
#include "belay/comm/calibrate.h"
#include "belay/comm/communicator.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/gloo_group.h"
#include "belay/comm/known_values.h"
#include "belay/comm/topology.h"
#include "belay/comm/world.h"

namespace belay::comm {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_us(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<Collective> wanted_collectives(const std::string& name) {
  if (name == "all") {
    std::vector<Collective> all;
    for (int i = 0; i < kCollectives; ++i) all.push_back(static_cast<Collective>(i));
    return all;
  }
  const auto collective = parse_collective(name);
  if (!collective) {
    fail(ExitCode::usage,
         "--collective '{}' is not one of all_reduce, reduce_scatter, all_gather, broadcast, "
         "reduce, all_to_all, barrier, all",
         name);
  }
  return {*collective};
}

DType wanted_dtype(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype || !can_reduce(*dtype)) {
    fail(ExitCode::usage, "--dtype '{}' is not one of f32, f64, bf16, f16, i32", name);
  }
  return *dtype;
}

// nullopt: the chooser's.
std::vector<std::optional<Algorithm>> wanted_algorithms(const std::string& name,
                                                        Collective collective) {
  if (name == "auto") return {std::nullopt};
  const auto known = algorithms_of(collective);
  if (name == "all") return {known.begin(), known.end()};
  const auto algorithm = parse_algorithm(name);
  if (!algorithm || std::find(known.begin(), known.end(), *algorithm) == known.end()) {
    std::vector<std::string_view> names;
    for (const Algorithm each : known) names.push_back(name_of(each));
    fail(ExitCode::usage, "{} has no algorithm '{}'; choose auto, all, {}", name_of(collective),
         name, fmt::join(names, ", "));
  }
  return {*algorithm};
}

bool is_segmented(Algorithm algorithm) {
  return algorithm == Algorithm::segmented_ring || algorithm == Algorithm::double_tree ||
         algorithm == Algorithm::chain;
}

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (p - 1) / p;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return (p - 1) / p;
    default:
      return 1;
  }
}

class Bench {
 public:
  Bench(World& world, Communicator& comm, Gloo& gloo, const CollectivesBench& options, DType dtype)
      : world_(world), comm_(comm), gloo_(gloo), options_(options), dtype_(dtype) {
    // The bench's own calls, in between, take what suits them.
    comm.set_chooser([this](Collective collective, int ranks, std::size_t size) {
      return collective == collective_ && calling_ ? choice_
                                                   : choose_by_size(collective, ranks, size);
    });
    in_place_ = !options.out_of_place;
    const auto bytes = static_cast<std::size_t>(options.max_bytes) + 4096;
    if (options.private_memory) {
      own_.resize(2 * bytes);
      input_ = own_.data();
      output_ = own_.data() + bytes;
    } else {
      input_ = comm.allocate(bytes);
      output_ = comm.allocate(bytes);
    }
  }
  ~Bench() {
    comm_.set_chooser(choose_by_size);
    if (!own_.empty()) return;
    comm_.deallocate(output_);
    comm_.deallocate(input_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Times the contestants and, if wanted, MPI in alternation; the row is that of the first.
  CollectiveTiming time(Collective collective, std::int64_t bytes,
                        const std::vector<Choice>& contestants, bool beside_mpi) {
    const std::int64_t elements = bytes / static_cast<std::int64_t>(size_of(dtype_));
    // all_to_all moves whole blocks.
    const std::int64_t block = std::max<std::int64_t>(elements / comm_.size(), 1);
    count_ = collective == Collective::all_to_all ? block * comm_.size() : elements;
    collective_ = collective;
    CollectiveTiming row;
    row.collective = collective;
    row.bytes = count_ * static_cast<std::int64_t>(size_of(dtype_));
    row.dtype = dtype_;
    row.correct = true;
    for (const Choice& choice : contestants) row.correct = check(choice) && row.correct;
    std::vector<std::vector<double>> own(contestants.size());
    std::vector<double> mpi;
    std::vector<double> gloo;
    const int calls = wanted_calls(contestants.front());
    // Warms MPI up, and says whether it can: it counts elements by int.
    const bool with_mpi = beside_mpi && world_.mpi_all_reduce(source(), output_, count_);
    // In an order that changes, the same on all ranks: what comes before leaves the caches as it
    // does.
    std::vector<std::size_t> order(contestants.size() + (with_mpi ? 1 : 0));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::minstd_rand random(1);
    for (int i = 0; i < calls; ++i) {
      for (std::size_t left = order.size(); left > 1; --left) {
        std::swap(order[left - 1], order[random() % left]);
      }
      for (const std::size_t each : order) {
        const bool is_mpi = each == contestants.size();
        if (!is_mpi) choice_ = contestants[each];
        world_.mpi_barrier();
        const Clock::time_point begin = Clock::now();
        if (is_mpi) {
          world_.mpi_all_reduce(source(), output_, count_);
        } else {
          call();
        }
        (is_mpi ? mpi : own[each]).push_back(elapsed_us(begin));
      }
    }
    // By itself: its sockets and threads disturb the others, and it takes milliseconds.
    for (int i = 0; beside_mpi && gloo_.there() && i < std::min(calls, options_.iterations); ++i) {
      world_.mpi_barrier();
      const Clock::time_point begin = Clock::now();
      gloo_.all_reduce(input_, output_, count_);
      gloo.push_back(elapsed_us(begin));
    }
    slowest(mpi);
    slowest(gloo);
    for (std::vector<double>& times : own) slowest(times);
    double sum = 0;
    for (const double us : own[0]) sum += us;
    row.algorithm = to_string(contestants[0]);
    row.mean_us = sum / static_cast<double>(calls);
    row.us = quantile(own[0], 0.5);
    row.p99_us = quantile(own[0], 0.99);
    row.mpi_us = mpi.empty() ? 0 : quantile(mpi, 0.5);
    row.gloo_us = gloo.empty() ? 0 : quantile(gloo, 0.5);
    row.algbw_gbps = static_cast<double>(row.bytes) / row.us * 1e-3;
    row.busbw_gbps = row.algbw_gbps * bus_factor(collective, comm_.size());
    if (contestants.size() > 1) add_regret(row, contestants, own);
    return row;
  }

 private:
  static void add_regret(CollectiveTiming& row, const std::vector<Choice>& contestants,
                         std::vector<std::vector<double>>& times) {
    double best = row.us;
    row.best = row.algorithm;
    for (std::size_t each = 1; each < times.size(); ++each) {
      const double us = quantile(times[each], 0.5);
      if (us >= best) continue;
      best = us;
      row.best = to_string(contestants[each]);
    }
    row.regret = row.us / best - 1;
  }

  void call() {
    const Calling calling(calling_);
    const std::int64_t block = count_ / comm_.size();
    switch (collective_) {
      case Collective::all_reduce:
        return comm_.all_reduce(source(), output_, count_, dtype_, ReduceOp::sum);
      case Collective::reduce_scatter:
        return comm_.reduce_scatter(input_, output_, count_, dtype_, ReduceOp::sum);
      case Collective::all_gather:
        return comm_.all_gather(input_, output_, count_, dtype_);
      case Collective::broadcast:
        return comm_.broadcast(input_, output_, count_, dtype_, 0);
      case Collective::reduce:
        return comm_.reduce(input_, output_, count_, dtype_, ReduceOp::sum, 0);
      case Collective::all_to_all:
        return comm_.all_to_all(input_, output_, block, dtype_);
      case Collective::barrier:
        return comm_.barrier();
    }
  }

  [[nodiscard]] const void* source() const {
    return in_place_ && collective_ == Collective::all_reduce ? output_ : input_;
  }

  // One call on values whose result is known; also the warm-up. The same on all ranks.
  bool check(const Choice& choice) {
    choice_ = choice;
    const KnownValues values(collective_, dtype_, count_, comm_.rank(), comm_.size());
    values.fill_input(input_);
    values.fill_output(output_, source() == output_);
    call();
    double wrong[1] = {static_cast<double>(values.wrong(output_))};
    comm_.all_reduce(wrong, wrong, 1, DType::f64, ReduceOp::sum);
    return wrong[0] == 0;
  }

  // As many calls as fit the time, by what a few take; the same on all ranks.
  int wanted_calls(const Choice& choice) {
    choice_ = choice;
    call();
    world_.mpi_barrier();
    const Clock::time_point begin = Clock::now();
    constexpr int kProbes = 3;
    for (int i = 0; i < kProbes; ++i) call();
    double us[1] = {elapsed_us(begin) / kProbes};
    comm_.all_reduce(us, us, 1, DType::f64, ReduceOp::max);
    constexpr double kMost = 5000;
    const double fitting = std::min(options_.seconds * 1e6 / std::max(us[0], 0.1), kMost);
    return std::max(options_.iterations, static_cast<int>(fitting));
  }

  void slowest(std::vector<double>& times) {
    comm_.all_reduce(times.data(), times.data(), static_cast<std::int64_t>(times.size()),
                     DType::f64, ReduceOp::max);
  }

  static double quantile(std::vector<double>& values, double share) {
    std::sort(values.begin(), values.end());
    const auto last = static_cast<double>(values.size() - 1);
    return values[static_cast<std::size_t>(std::lround(share * last))];
  }

  struct Calling {
    explicit Calling(bool& flag) : flag_(flag) { flag_ = true; }
    ~Calling() { flag_ = false; }
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;
    bool& flag_;
  };

  World& world_;
  Communicator& comm_;
  Gloo& gloo_;
  const CollectivesBench& options_;
  DType dtype_;
  std::vector<std::byte> own_;
  void* input_ = nullptr;
  void* output_ = nullptr;
  bool in_place_ = false;
  std::int64_t count_ = 0;
  Collective collective_ = Collective::all_reduce;
  Choice choice_;
  bool calling_ = false;
};

void add_ratios(CollectivesReport& report) {
  double logs = 0;
  int count = 0;
  for (const CollectiveTiming& row : report.rows) {
    if (row.mpi_us <= 0) continue;
    const double ratio = row.mpi_us / row.us;
    logs += std::log(ratio);
    report.least_ratio = count == 0 ? ratio : std::min(report.least_ratio, ratio);
    ++count;
  }
  if (count > 0) report.mpi_ratio = std::exp(logs / count);
}

}  // namespace

CollectivesReport bench_collectives(World& world, const CollectivesBench& options,
                                    const std::function<void(const CollectiveTiming&)>& on_row) {
  const DType dtype = wanted_dtype(options.dtype);
  const std::vector<Collective> collectives = wanted_collectives(options.collective);
  for (const Collective collective : collectives) {
    if (options.collective != "all") wanted_algorithms(options.algorithm, collective);
  }
  std::vector<ForcedChoice> forced;
  for (const std::string& text : options.force) forced.push_back(parse_forced(text));
  // Before there is a communicator: an error of one rank then is no call that others wait in.
  std::optional<Topology> mapped;
  if (!options.rank_map.empty()) {
    mapped = topology_of_map(read_rank_map(options.rank_map), world.host_of(), options.rank_map);
  }
  CommunicatorOptions comm_options;
  comm_options.order_stable = options.order_stable;
  const std::unique_ptr<Transport> faults =
      inject_faults(world.transport(), options.inject, RankIs::process);
  Communicator comm(faults != nullptr ? *faults : world.transport(), comm_options);
  const Topology topology = mapped ? *mapped : find_topology(comm, world.host_of());
  comm.set_layout(topology.layout());
  CollectivesReport report;
  report.rank = comm.rank();
  report.ranks = comm.size();
  report.topology = topology.to_text();
  const NamedChooser named_chooser =
      chooser_named(comm, options.chooser, forced, topology.domain_of);
  const Chooser& chooser = named_chooser.chooser;
  report.table = named_chooser.table;
  const bool domains = topology.domains() > 1;
  Gloo gloo(comm, !options.messages && topology.hosts() == 1 && options.gloo);
  Bench bench(world, comm, gloo, options, dtype);
  for (const Collective collective : collectives) {
    const bool beside_mpi =
        collective == Collective::all_reduce && dtype == DType::f32 && world.size() > 1;
    // With all collectives a single algorithm suits but some.
    const bool named = options.algorithm == "all" || options.collective != "all";
    for (const auto algorithm : wanted_algorithms(named ? options.algorithm : "auto", collective)) {
      // Of all algorithms, one that would run as another is not one.
      if (options.algorithm == "all" && needs_shared_memory(*algorithm) && !comm.shares_memory()) {
        continue;
      }
      for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
        Choice choice = chooser(collective, comm.size(), static_cast<std::size_t>(bytes));
        if (algorithm && *algorithm != choice.algorithm) {
          choice = {.algorithm = *algorithm, .segments = is_segmented(*algorithm) ? 4 : 1};
        }
        if (!comm.shares_memory()) choice = without_shared_memory(choice);
        std::vector<Choice> contestants{choice};
        for (const Choice& other :
             candidates_of(collective, comm.size(), domains, comm.shares_memory())) {
          if (options.regret && other != choice) contestants.push_back(other);
        }
        report.rows.push_back(bench.time(collective, bytes, contestants, beside_mpi));
        if (comm.rank() == 0) on_row(report.rows.back());
        if (collective == Collective::barrier) break;
      }
    }
  }
  add_ratios(report);
  return report;
}

void refuse_wrong_results(const CollectivesReport& report) {
  std::vector<std::string> wrong;
  for (const CollectiveTiming& row : report.rows) {
    if (row.correct) continue;
    wrong.push_back(
        fmt::format("{} by {} of {} bytes", name_of(row.collective), row.algorithm, row.bytes));
  }
  if (wrong.empty()) return;
  if (report.rank != 0) throw Error(ExitCode::failure, "");
  fail(ExitCode::failure, "wrong results: {}", fmt::join(wrong, ", "));
}

}  // namespace belay::comm
