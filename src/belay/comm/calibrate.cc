#include "belay/comm/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "belay/base/error.h"
#include "belay/comm/comm_config.h"
#include "belay/comm/patterns/emit.h"

namespace belay::comm {
namespace {

enum class Motion { move, reduce, post };

// Rounds in which every rank sends its whole vector to one neighbour and takes that of another.
class Shift final : public Pattern {
 public:
  // to, from: of each rank; -1 for ranks that have none.
  Shift(std::vector<int> to, std::vector<int> from, std::int64_t count, Motion motion, int rounds)
      : to_(std::move(to)),
        from_(std::move(from)),
        count_(count),
        motion_(motion),
        rounds_(rounds) {}

  [[nodiscard]] std::int64_t rounds() const override { return rounds_; }

  void append(int rank, std::int64_t, std::vector<Step>& steps) const override {
    Emit emit(steps);
    const auto own = static_cast<std::size_t>(rank);
    const Place input{Buffer::input, 0};
    if (to_[own] >= 0) {
      if (motion_ == Motion::post) {
        emit.post(to_[own], input, count_);
      } else {
        emit.send(to_[own], input, count_);
      }
    }
    if (from_[own] < 0) return;
    if (motion_ == Motion::reduce) {
      emit.receive_reduce(from_[own], Buffer::input, input, {Buffer::work, 0}, count_, false);
    } else {
      emit.receive(from_[own], Buffer::input, {Buffer::output, 0}, count_);
    }
  }

 private:
  std::vector<int> to_;
  std::vector<int> from_;
  std::int64_t count_;
  Motion motion_;
  int rounds_;
};

class Calibration {
 public:
  Calibration(Communicator& comm, const CalibrationOptions& options)
      : comm_(comm), options_(options) {
    input_ = static_cast<float*>(comm.allocate(options.most_bytes));
    output_ = static_cast<float*>(comm.allocate(options.most_bytes));
    std::fill(input_, input_ + options.most_bytes / sizeof(float), 1.0F);
  }
  ~Calibration() {
    comm_.deallocate(output_);
    comm_.deallocate(input_);
  }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  // to: the neighbour of each rank.
  Curve measure(const std::vector<int>& to, Motion motion, std::size_t most_bytes) {
    std::vector<int> from(to.size(), -1);
    for (std::size_t rank = 0; rank < to.size(); ++rank) {
      if (to[rank] >= 0) from[static_cast<std::size_t>(to[rank])] = static_cast<int>(rank);
    }
    std::vector<double> bytes;
    std::vector<double> seconds;
    for (std::size_t size = 64; size <= most_bytes; size *= 4) {
      bytes.push_back(static_cast<double>(size));
      seconds.push_back(point(to, from, motion, static_cast<std::int64_t>(size / sizeof(float))));
    }
    // Noise must not make more bytes cheaper.
    for (std::size_t i = 1; i < seconds.size(); ++i) {
      seconds[i] = std::max(seconds[i], seconds[i - 1]);
    }
    return Curve::through(std::move(bytes), std::move(seconds));
  }

  Curve measure_copy() {
    std::vector<double> bytes;
    std::vector<double> seconds;
    for (std::size_t size = 64; size <= options_.most_bytes; size *= 4) {
      bytes.push_back(static_cast<double>(size));
      seconds.push_back(slowest([&] { std::memcpy(output_, input_, size); }));
    }
    return Curve::through(std::move(bytes), std::move(seconds));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Of the slowest rank; a low quantile, as other programs only ever make it slower.
  template <class Body>
  double slowest(Body body) {
    constexpr int kRepetitions = 9;
    double times[kRepetitions];
    body();
    for (double& time : times) {
      comm_.barrier();
      const Clock::time_point begin = Clock::now();
      body();
      time = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    comm_.all_reduce(times, times, kRepetitions, DType::f64, ReduceOp::max);
    std::sort(times, times + kRepetitions);
    return times[kRepetitions / 4];
  }

  double point(const std::vector<int>& to, const std::vector<int>& from, Motion motion,
               std::int64_t count) {
    // Enough rounds that starting a call and looking at the clock do not count.
    const int rounds = count <= 4096 ? 64 : 8;
    Schedule schedule;
    schedule.name = "shift";
    schedule.ranks = comm_.size();
    schedule.blocks = Blocks::even(0, count, comm_.size());
    schedule.lanes.push_back(std::make_unique<Shift>(to, from, count, motion, rounds));
    return slowest(
               [&] { comm_.run_schedule(schedule, input_, output_, DType::f32, ReduceOp::sum); }) /
           rounds;
  }

  Communicator& comm_;
  const CalibrationOptions& options_;
  float* input_ = nullptr;
  float* output_ = nullptr;
};

// Times candidates of a collective, in an order that changes.
class CandidateTimes {
 public:
  CandidateTimes(Communicator& comm, std::size_t most_bytes)
      : comm_(comm), chooser_(comm.chooser()), most_bytes_(most_bytes) {
    input_ = comm.allocate(most_bytes);
    output_ = comm.allocate(most_bytes);
    std::memset(input_, 0, most_bytes);
    std::memset(output_, 0, most_bytes);
  }
  ~CandidateTimes() {
    comm_.set_chooser(chooser_);
    comm_.deallocate(output_);
    comm_.deallocate(input_);
  }
  CandidateTimes(const CandidateTimes&) = delete;
  CandidateTimes& operator=(const CandidateTimes&) = delete;

  std::vector<MeasuredSize> measure(const ChoiceTable& table, Collective collective) {
    std::vector<MeasuredSize> measured;
    for (std::size_t bytes = 1024; bytes <= most_bytes_; bytes *= 4) {
      measured.push_back(measure_size(table, collective, bytes));
    }
    return measured;
  }

 private:
  static constexpr std::size_t kRepetitions = 9;
  // Predicted to take longer than this many times the best: not worth a try.
  static constexpr double kHopeless = 4;

  MeasuredSize measure_size(const ChoiceTable& table, Collective collective, std::size_t bytes) {
    const auto candidates = table.candidates(collective);
    const auto predicted = table.predictions(collective, bytes);
    const double best = *std::min_element(predicted.begin(), predicted.end());
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (predicted[i] <= kHopeless * best) order.push_back(i);
    }
    std::vector<double> times(candidates.size() * kRepetitions);
    std::minstd_rand random(1);
    for (std::size_t turn = 0; turn <= kRepetitions; ++turn) {
      for (std::size_t left = order.size(); left > 1; --left) {
        std::swap(order[left - 1], order[random() % left]);
      }
      for (const std::size_t each : order) {
        const double seconds = time(collective, candidates[each], bytes);
        // The first turn warms up.
        if (turn > 0) times[each * kRepetitions + turn - 1] = seconds;
      }
    }
    comm_.all_reduce(times.data(), times.data(), static_cast<std::int64_t>(times.size()),
                     DType::f64, ReduceOp::max);
    MeasuredSize result{bytes, std::vector<double>(candidates.size())};
    for (const std::size_t each : order) {
      const auto begin = times.begin() + static_cast<std::ptrdiff_t>(each * kRepetitions);
      std::sort(begin, begin + kRepetitions);
      result.seconds[each] = *(begin + kRepetitions / 3);
    }
    return result;
  }

  double time(Collective collective, const Choice& choice, std::size_t bytes) {
    comm_.set_chooser([collective, choice](Collective called, int ranks, std::size_t size) {
      return called == collective ? choice : choose_by_size(called, ranks, size);
    });
    const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
    comm_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (collective == Collective::reduce_scatter) {
      comm_.reduce_scatter(input_, output_, count, DType::f32, ReduceOp::sum);
    } else if (collective == Collective::all_gather) {
      comm_.all_gather(input_, output_, count, DType::f32);
    } else {
      comm_.all_reduce(output_, output_, count, DType::f32, ReduceOp::sum);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Communicator& comm_;
  Chooser chooser_;  // as it was
  std::size_t most_bytes_;
  void* input_ = nullptr;
  void* output_ = nullptr;
};

// The next rank of the same domain, in a ring.
std::vector<int> neighbours_within(const std::vector<std::vector<int>>& domains, int ranks) {
  std::vector<int> to(static_cast<std::size_t>(ranks), -1);
  for (const std::vector<int>& members : domains) {
    for (std::size_t i = 0; members.size() > 1 && i < members.size(); ++i) {
      to[static_cast<std::size_t>(members[i])] = members[(i + 1) % members.size()];
    }
  }
  return to;
}

// The rank with the same position in the next domain, for as many as all domains have.
std::vector<int> neighbours_across(const std::vector<std::vector<int>>& domains, int ranks) {
  std::vector<int> to(static_cast<std::size_t>(ranks), -1);
  std::size_t least = domains.front().size();
  for (const auto& members : domains) least = std::min(least, members.size());
  for (std::size_t d = 0; d < domains.size(); ++d) {
    const auto& next = domains[(d + 1) % domains.size()];
    for (std::size_t i = 0; i < least; ++i) to[static_cast<std::size_t>(domains[d][i])] = next[i];
  }
  return to;
}

}  // namespace

MachineModel calibrate(Communicator& comm, const std::vector<int>& domain_of,
                       const CalibrationOptions& options) {
  MachineModel model;
  model.domain_of = domain_of;
  model.shares_memory = comm.shares_memory();
  if (comm.size() == 1) return model;
  const auto domains = members_of_domains(
      domain_of.empty() ? std::vector<int>(static_cast<std::size_t>(comm.size())) : domain_of);
  Calibration calibration(comm, options);
  const auto measure_level = [&](const std::vector<int>& to) {
    return LevelModel{calibration.measure(to, Motion::move, options.most_bytes),
                      calibration.measure(to, Motion::reduce, options.most_bytes)};
  };
  const bool within = std::any_of(domains.begin(), domains.end(),
                                  [](const auto& members) { return members.size() > 1; });
  const std::vector<int> inner = neighbours_within(domains, comm.size());
  if (within) model.inner = measure_level(inner);
  if (domains.size() > 1) {
    model.outer = measure_level(neighbours_across(domains, comm.size()));
    if (!within) model.inner = model.outer;
  } else {
    model.outer = model.inner;
  }
  const std::vector<int> posting = within ? inner : neighbours_across(domains, comm.size());
  const Curve posted = calibration.measure(posting, Motion::post, comm.post_bytes());
  // What a post costs beyond the receiver's part of it.
  std::vector<double> post_seconds;
  for (std::size_t i = 0; i < posted.bytes().size(); ++i) {
    post_seconds.push_back(
        std::max(posted.seconds()[i] - model.inner.move(posted.bytes()[i]), 1e-9));
  }
  model.post = Curve::through(posted.bytes(), post_seconds);
  model.copy = calibration.measure_copy();
  // A further contribution is read, but nothing is written.
  const double most = static_cast<double>(options.most_bytes);
  model.extra_part_s_per_byte = 0.6 * model.inner.move(most) / most;
  return model;
}

std::shared_ptr<const ChoiceTable> predict_choices(Communicator& comm,
                                                   const std::vector<int>& domain_of,
                                                   const CalibrationOptions& options) {
  const MachineModel model = calibrate(comm, domain_of, options);
  auto table = std::make_shared<ChoiceTable>(model, comm.size(), comm.post_bytes());
  if (comm.size() > 1 && options.measure_candidates) {
    CandidateTimes times(comm, options.most_bytes);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      table->correct(collective, times.measure(*table, collective));
    }
  }
  comm.forget_schedules();
  return table;
}

Chooser by_table(std::shared_ptr<const ChoiceTable> table) {
  return [table = std::move(table)](Collective collective, int, std::size_t bytes) {
    return table->choose(collective, bytes);
  };
}

namespace {

ChooserKind chooser_kind(std::string_view name) {
  constexpr std::array<ChooserKind, 4> kKinds = {ChooserKind::model, ChooserKind::size,
                                                 ChooserKind::doubling_tree_ring,
                                                 ChooserKind::ring_tree_hierarchical};
  std::vector<std::string_view> names;
  for (const ChooserKind kind : kKinds) {
    names.push_back(name_of(kind));
    if (names.back() == name) return kind;
  }
  fail(ExitCode::usage, "there is no way of choosing named '{}'; take one of {}", name,
       fmt::join(names, ", "));
}

}  // namespace

NamedChooser chooser_named(Communicator& comm, std::string_view name,
                           const std::vector<ForcedChoice>& forced,
                           const std::vector<int>& domain_of) {
  switch (chooser_kind(name)) {
    case ChooserKind::model: {
      const auto choices = predict_choices(comm, domain_of);
      return {with_forced(forced, by_table(choices)), choices->to_text()};
    }
    case ChooserKind::size:
      break;
    case ChooserKind::doubling_tree_ring:
      return {with_forced(forced, choose_doubling_tree_ring), ""};
    case ChooserKind::ring_tree_hierarchical:
      return {with_forced(forced, choose_ring_tree_hierarchical), ""};
  }
  return {with_forced(forced, choose_by_size), ""};
}

}  // namespace belay::comm
