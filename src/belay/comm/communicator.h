#pragma once
// Collectives for the rest of the engine. Every rank makes the same calls in the same order; a call
// blocks until this rank's part is done. Calls throw Error(communication) on every rank if a rank
// is missing, stopped, has ended, or makes another call (watch.h), and from then on always.
//
// Results have the same bits on all ranks, and in every run of the same choice of algorithm. With
// `order_stable` they have the same bits for every algorithm, size of bucket and placement of ranks
// too (algorithm.h). f16 and bf16 sums accumulate in f32 and are rounded once.
//
// In place: input and output may be the same memory, the block in question for reduce_scatter and
// all_gather; all_to_all needs two. Memory from allocate() is used where it lies; other memory is
// copied on the way between processes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belay/comm/algorithm.h"
#include "belay/comm/choice.h"
#include "belay/comm/executor.h"
#include "belay/comm/flight_recorder.h"
#include "belay/comm/transport.h"

namespace belay::comm {

struct CommunicatorOptions {
  double timeout_s = 30;
  bool order_stable = false;
  Layout layout{};
  Chooser chooser = &choose_by_size;
  // Schedules that are kept for calls to come: above what a step of training repeats.
  std::size_t kept_schedules = 1024;
};

class Communicator {
 public:
  Communicator(Transport& transport, CommunicatorOptions options);
  // Tells the others that this rank is gone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] int size() const { return transport_.size(); }
  [[nodiscard]] std::size_t post_bytes() const { return transport_.post_bytes(); }
  [[nodiscard]] bool shares_memory() const { return transport_.shares_memory(); }
  [[nodiscard]] std::uint64_t calls() const { return sequence_; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op);
  // bounds: p + 1 ends of the blocks, from 0 to the number of elements of the vector.
  void reduce_scatter(const void* input, void* output, std::span<const std::int64_t> bounds,
                      DType dtype, ReduceOp op);
  void all_gather(const void* input, void* output, std::span<const std::int64_t> bounds,
                  DType dtype);
  // Blocks as even as Blocks::even makes them.
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype,
                      ReduceOp op);
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype);
  // Input counts at the root only, as output does for reduce; elsewhere they may be null.
  void broadcast(const void* input, void* output, std::int64_t count, DType dtype, int root);
  void reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
              int root);
  // `block` elements to each rank.
  void all_to_all(const void* input, void* output, std::int64_t block, DType dtype);
  void barrier();

  // Carries out a schedule of the caller's own, the same on all ranks: to measure links, or to try
  // an algorithm. Buffers as for its collective.
  void run_schedule(const Schedule& schedule, const void* input, void* output, DType dtype,
                    ReduceOp op);

  // The same for a schedule that is run often: what it needs is worked out once.
  struct Kept;
  [[nodiscard]] std::shared_ptr<Kept> keep_schedule(const Schedule& schedule, DType dtype) const;
  void run_kept(Kept& schedule, const void* input, void* output, ReduceOp op);

  // A call whose messages, of up to so many bytes, the body exchanges itself: see link_probe.h.
  using Exchange = std::function<void(Transport&, Watch&, const Signature&)>;
  void run_exchange(std::size_t bytes, const Exchange& body);

  // Memory that calls use without copying: zero, aligned to 64 bytes. A call like the others;
  // all ranks give it back in the same order.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory) { transport_.deallocate(memory); }

  // This rank cannot go on: the others' calls throw the error's exit code, without a message, which
  // is this rank's to tell. Nothing if it is such an error itself, or one of communication.
  void abort(const Error& error);
  // Whether calls wait without taking the processor from what computes beside them.
  void set_patient(bool patient) { executor_.set_patient(patient); }
  [[nodiscard]] bool is_patient() const { return executor_.is_patient(); }
  // The calls that follow take another chooser, or another layout; collective.
  void set_chooser(Chooser chooser);
  [[nodiscard]] const Chooser& chooser() const { return options_.chooser; }
  void set_layout(Layout layout);
  [[nodiscard]] const Layout& layout() const { return options_.layout; }
  // The calls that follow leave these links alone as far as detour.h finds ways around them, in the
  // layout as it was set; empty: in that. Collective. False where there is no way for a ring.
  bool avoid(const std::vector<Link>& slow);
  // A setting of the group, such as the size of its buffers, that cannot change while it lives: the
  // first value stays. Error(usage) for another one.
  void freeze(const std::string& key, const std::string& value);
  // How often the way has changed: part of the signature of every call.
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  // What the links to this rank have carried.
  [[nodiscard]] LinkMeter& meter() { return meter_; }
  [[nodiscard]] std::size_t kept_schedules() const { return kept_.size(); }
  // Prepared schedules, kept for calls to come, go.
  void forget_schedules();
  // What the last calls were: kept in memory, and in a file when the rank ends as it should not.
  [[nodiscard]] FlightRecorder& flight() { return *flight_; }

  // The choice for the next call of this kind, as it can run.
  [[nodiscard]] Choice choice_of(Collective collective, std::size_t bytes) const;

 private:
  struct Call {
    Signature signature{};
    const void* input = nullptr;
    void* output = nullptr;
    std::int64_t input_count = 0;   // elements this rank gives
    std::int64_t output_count = 0;  // and gets
    std::span<const std::int64_t> bounds{};
  };

  void run(Call call);
  void run_prepared(Kept& prepared, Call call);
  Kept& prepare(const Call& call);
  std::unique_ptr<Kept> prepare_schedule(const Schedule& schedule, const ScheduleKey& key,
                                         DType dtype) const;
  void make_room();
  std::byte* scratch(std::size_t bytes, const Signature& signature);
  // Allocation needs all ranks, without a time-out: so they meet first.
  void* allocate_together(std::size_t bytes, const Signature& signature);

  [[nodiscard]] Signature next_call(Signature signature);

  Transport& transport_;
  CommunicatorOptions options_;
  Layout given_layout_;
  std::vector<std::pair<std::string, std::string>> frozen_;
  std::uint32_t epoch_ = 0;
  LinkMeter meter_;
  std::unique_ptr<FlightRecorder> flight_;
  Executor executor_;
  PreparedProgram meeting_;
  std::uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<Kept>> kept_;
  std::size_t last_used_ = 0;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace belay::comm
