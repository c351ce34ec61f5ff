#include "belay/comm/communicator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <utility>

#include "belay/base/error.h"
#include "belay/base/log.h"
#include "belay/comm/detour.h"

namespace belay::comm {
namespace {

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Where a call's buffers lie in the scratch memory, in this order. The sizes depend on what all
// ranks know alike, so that they grow the memory together.
struct ScratchPlan {
  std::size_t input = 0;
  std::size_t output = 0;
  std::size_t work = 0;
  std::size_t spare = 0;

  [[nodiscard]] std::size_t total() const { return input + output + work + spare; }
};

}  // namespace

// A program for calls of one kind and size, kept for the next such call.
struct Communicator::Kept {
  ScheduleKey key;
  DType dtype;
  std::vector<std::int64_t> bounds;
  PreparedProgram program;
  ScratchPlan scratch;
  bool work_in_output = false;
  bool own = false;             // a schedule of the caller's own
  std::uint64_t last_call = 0;  // of this kind

  [[nodiscard]] Choice choice() const {
    return {.algorithm = key.algorithm,
            .segments = key.segments,
            .inner = key.inner,
            .outer = key.outer};
  }
};

Communicator::Communicator(Transport& transport, CommunicatorOptions options)
    : transport_(transport),
      options_(std::move(options)),
      given_layout_(options_.layout),
      meter_(transport.size()),
      flight_(std::make_unique<FlightRecorder>(transport)),
      executor_(transport, options_.timeout_s, flight_.get(), &meter_),
      meeting_(program_of(make_schedule({.collective = Collective::barrier,
                                         .algorithm = Algorithm::dissemination,
                                         .ranks = transport.size()}),
                          transport.rank())) {}

Communicator::~Communicator() {
  const bool failed = std::uncaught_exceptions() > 0 || transport_.raised();
  transport_.leave(failed ? RankStatus::State::failed : RankStatus::State::left);
  if (failed && flight_->is_kept() && !flight_->write()) {
    // Other ranks than the first say errors only.
    log::error("the flight record {} cannot be written", flight_->path());
  }
  if (scratch_ != nullptr) transport_.deallocate(scratch_);
}

void Communicator::set_chooser(Chooser chooser) {
  options_.chooser = std::move(chooser);
}

Choice Communicator::choice_of(Collective collective, std::size_t bytes) const {
  const Choice choice = options_.chooser(collective, size(), bytes);
  return shares_memory() ? choice : without_shared_memory(choice);
}

void Communicator::set_layout(Layout layout) {
  options_.layout = layout;
  given_layout_ = std::move(layout);
  forget_schedules();
}

void Communicator::freeze(const std::string& key, const std::string& value) {
  const auto found = std::find_if(frozen_.begin(), frozen_.end(),
                                  [&](const auto& setting) { return setting.first == key; });
  if (found == frozen_.end()) {
    frozen_.emplace_back(key, value);
  } else if (found->second != value) {
    fail(ExitCode::usage,
         "{} is frozen at {} since the ranks have made their buffers by it; {} takes effect in a "
         "new "
         "run, or when this one is resumed",
         key, found->second, value);
  }
}

bool Communicator::avoid(const std::vector<Link>& slow) {
  const auto ring = ring_around(slow, size(), given_layout_.ring, given_layout_.domain_of);
  // No way around: everything is as it was given.
  if (!ring && options_.layout.slow.empty()) return false;
  options_.layout = given_layout_;
  if (ring && !slow.empty()) {
    options_.layout.slow = slow;
    options_.layout.ring = *ring;
  }
  ++epoch_;
  forget_schedules();
  return ring.has_value();
}

void Communicator::abort(const Error& error) {
  if (error.code() == ExitCode::communication || *error.what() == '\0') return;
  executor_.abort(error.code(), error.what());
}

void Communicator::forget_schedules() {
  kept_.clear();
}

void Communicator::all_reduce(const void* input, void* output, std::int64_t count, DType dtype,
                              ReduceOp op) {
  Call call{.input = input, .output = output, .input_count = count, .output_count = count};
  call.signature = {0, count, -1, Collective::all_reduce, op, dtype, 0};
  run(call);
}

void Communicator::reduce_scatter(const void* input, void* output,
                                  std::span<const std::int64_t> bounds, DType dtype, ReduceOp op) {
  const auto own = static_cast<std::size_t>(rank());
  Call call{.input = input, .output = output, .bounds = bounds};
  call.input_count = bounds.back();
  call.output_count = bounds[own + 1] - bounds[own];
  call.signature = {0, bounds.back(), -1, Collective::reduce_scatter, op, dtype, 0};
  run(call);
}

void Communicator::all_gather(const void* input, void* output, std::span<const std::int64_t> bounds,
                              DType dtype) {
  const auto own = static_cast<std::size_t>(rank());
  Call call{.input = input, .output = output, .bounds = bounds};
  call.input_count = bounds[own + 1] - bounds[own];
  call.output_count = bounds.back();
  call.signature = {0, bounds.back(), -1, Collective::all_gather, ReduceOp::sum, dtype, 0};
  run(call);
}

void Communicator::reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype,
                                  ReduceOp op) {
  reduce_scatter(input, output, Blocks::even(0, count, size()).bounds, dtype, op);
}

void Communicator::all_gather(const void* input, void* output, std::int64_t count, DType dtype) {
  all_gather(input, output, Blocks::even(0, count, size()).bounds, dtype);
}

void Communicator::broadcast(const void* input, void* output, std::int64_t count, DType dtype,
                             int root) {
  Call call{.input = input, .output = output, .output_count = count};
  call.input_count = rank() == root ? count : 0;
  call.signature = {0, count, root, Collective::broadcast, ReduceOp::sum, dtype, 0};
  run(call);
}

void Communicator::reduce(const void* input, void* output, std::int64_t count, DType dtype,
                          ReduceOp op, int root) {
  Call call{.input = input, .output = output, .input_count = count};
  call.output_count = rank() == root ? count : 0;
  call.signature = {0, count, root, Collective::reduce, op, dtype, 0};
  run(call);
}

void Communicator::all_to_all(const void* input, void* output, std::int64_t block, DType dtype) {
  const std::int64_t count = block * size();
  Call call{.input = input, .output = output, .input_count = count, .output_count = count};
  call.signature = {0, count, -1, Collective::all_to_all, ReduceOp::sum, dtype, 0};
  run(call);
}

void Communicator::barrier() {
  Call call;
  call.signature = {0, 0, -1, Collective::barrier, ReduceOp::sum, DType::u8, 0};
  run(call);
}

Communicator::Kept& Communicator::prepare(const Call& call) {
  const Signature& signature = call.signature;
  const std::size_t element = size_of(signature.dtype);
  Choice choice =
      choice_of(signature.collective, static_cast<std::size_t>(signature.count) * element);
  if (!options_.layout.slow.empty()) {
    choice = choice_around(choice, signature.collective, options_.order_stable);
  }
  ScheduleKey key{.collective = signature.collective, .algorithm = choice.algorithm};
  key.ranks = size();
  key.root = std::max(signature.root, 0);
  key.count = signature.count;
  key.segments = choice.segments;
  // A posted partial result is as wide as the accumulation type.
  key.post_elements = static_cast<std::int64_t>(transport_.post_bytes() /
                                                size_of(accumulation_type(signature.dtype)));
  key.order_stable = options_.order_stable;
  key.inner = choice.inner;
  key.outer = choice.outer;
  const auto same = [&](const std::unique_ptr<Kept>& entry) {
    return entry->key == key && entry->dtype == signature.dtype &&
           std::equal(entry->bounds.begin(), entry->bounds.end(), call.bounds.begin(),
                      call.bounds.end());
  };
  if (last_used_ < kept_.size() && same(kept_[last_used_])) return *kept_[last_used_];
  const auto found = std::find_if(kept_.begin(), kept_.end(), same);
  if (found != kept_.end()) {
    last_used_ = static_cast<std::size_t>(found - kept_.begin());
    return **found;
  }

  Layout layout = options_.layout;
  layout.bounds.assign(call.bounds.begin(), call.bounds.end());
  make_room();
  kept_.push_back(prepare_schedule(make_schedule(key, layout), key, signature.dtype));
  last_used_ = kept_.size() - 1;
  kept_.back()->bounds = std::move(layout.bounds);
  return *kept_.back();
}

// What has not been called for longest goes.
void Communicator::make_room() {
  if (kept_.size() < std::max<std::size_t>(options_.kept_schedules, 1)) return;
  const auto oldest =
      std::min_element(kept_.begin(), kept_.end(),
                       [](const auto& a, const auto& b) { return a->last_call < b->last_call; });
  kept_.erase(oldest);
}

std::unique_ptr<Communicator::Kept> Communicator::prepare_schedule(const Schedule& schedule,
                                                                   const ScheduleKey& key,
                                                                   DType dtype) const {
  const std::size_t element = size_of(dtype);
  const std::size_t wide = size_of(accumulation_type(dtype));
  const auto count = static_cast<std::size_t>(schedule.count());
  ScratchPlan plan;
  plan.input = aligned(count * element);
  plan.output = aligned(count * element);
  plan.spare = aligned(static_cast<std::size_t>(schedule.spare) * wide);
  const bool in_output = schedule.collective == Collective::all_reduce && wide == element;
  if (reduces(schedule.collective) && !in_output) plan.work = aligned(count * wide);
  return std::make_unique<Kept>(
      Kept{key, dtype, {}, PreparedProgram(program_of(schedule, rank())), plan, in_output});
}

std::shared_ptr<Communicator::Kept> Communicator::keep_schedule(const Schedule& schedule,
                                                                DType dtype) const {
  ScheduleKey key{.collective = schedule.collective};
  key.count = schedule.count();
  auto kept = prepare_schedule(schedule, key, dtype);
  kept->own = true;
  return kept;
}

void Communicator::run_kept(Kept& schedule, const void* input, void* output, ReduceOp op) {
  const ScheduleKey& key = schedule.key;
  Call call{.input = input, .output = output};
  call.input_count = call.output_count = key.count;
  call.signature = next_call({0, key.count, -1, key.collective, op, schedule.dtype});
  run_prepared(schedule, call);
}

void Communicator::run_schedule(const Schedule& schedule, const void* input, void* output,
                                DType dtype, ReduceOp op) {
  run_kept(*keep_schedule(schedule, dtype), input, output, op);
}

void Communicator::run_exchange(std::size_t bytes, const Exchange& body) {
  Signature signature;
  signature.count = static_cast<std::int64_t>(bytes);
  signature.algorithm = kExchange;
  signature = next_call(signature);
  executor_.watch().begin(signature);
  body(transport_, executor_.watch(), signature);
  transport_.finish(sequence_);
  flight_->done(sequence_);
}

void* Communicator::allocate_together(std::size_t bytes, const Signature& signature) {
  executor_.run(meeting_, signature, {}, false);
  return transport_.allocate(bytes);
}

void* Communicator::allocate(std::size_t bytes) {
  Signature signature;
  signature.count = static_cast<std::int64_t>(bytes);
  signature = next_call(signature);
  void* const memory = allocate_together(bytes, signature);
  transport_.finish(sequence_);
  flight_->done(sequence_);
  return memory;
}

std::byte* Communicator::scratch(std::size_t bytes, const Signature& signature) {
  if (bytes > scratch_bytes_) {
    if (scratch_ != nullptr) transport_.deallocate(std::exchange(scratch_, nullptr));
    scratch_bytes_ = 0;
    scratch_ = static_cast<std::byte*>(allocate_together(std::bit_ceil(bytes), signature));
    scratch_bytes_ = std::bit_ceil(bytes);
  }
  return scratch_;
}

Signature Communicator::next_call(Signature signature) {
  signature.sequence = ++sequence_;
  signature.epoch = epoch_;
  flight_->queued(signature);
  return signature;
}

void Communicator::run(Call call) {
  call.signature = next_call(call.signature);
  run_prepared(prepare(call), call);
}

void Communicator::run_prepared(Kept& prepared, Call call) {
  prepared.last_call = sequence_;
  if (prepared.own) {
    call.signature.algorithm = kOwnSchedule;
  } else {
    put_choice(call.signature, prepared.choice());
  }
  const ScratchPlan& plan = prepared.scratch;
  const std::size_t element = size_of(call.signature.dtype);
  const std::size_t input_bytes = static_cast<std::size_t>(call.input_count) * element;
  const std::size_t output_bytes = static_cast<std::size_t>(call.output_count) * element;
  std::byte* const room = scratch(plan.total(), call.signature);
  CallBuffers buffers{call.input, call.output, nullptr, nullptr};
  if (output_bytes > 0 && !transport_.readable(call.output, output_bytes)) {
    buffers.output = room + plan.input;
  }
  if (input_bytes > 0 && !transport_.readable(call.input, input_bytes)) {
    std::memcpy(room, call.input, input_bytes);
    buffers.input = room;
  }
  if (prepared.work_in_output) {
    buffers.work = buffers.output;
  } else if (plan.work > 0) {
    buffers.work = room + plan.input + plan.output;
  }
  if (plan.spare > 0) buffers.spare = room + plan.input + plan.output + plan.work;
  executor_.run(prepared.program, call.signature, buffers);
  if (buffers.output != call.output && output_bytes > 0) {
    std::memcpy(call.output, buffers.output, output_bytes);
  }
  flight_->done(call.signature.sequence);
}

}  // namespace belay::comm
