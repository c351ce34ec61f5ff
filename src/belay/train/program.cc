#include "belay/train/program.h"

#include <cmath>

namespace belay {
namespace {

constexpr int kInputTensors = 4;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t input_tensor_bytes(const ProgramConfig& config) {
  return aligned(static_cast<std::size_t>(config.micro_batch * config.seq_len) * 4);
}

std::size_t squares_bytes(const ParameterTable& table) {
  return aligned(static_cast<std::size_t>(table.size()) * sizeof(double));
}

// The loss, and at the next aligned addresses the sums of squares of every parameter's gradient:
// of all ranks, and of this one alone.
std::size_t sums_bytes(const ParameterTable& table) {
  return kAlignment + 2 * squares_bytes(table);
}

}  // namespace

// Looks at each gradient once it is complete: the norm for clipping, and whether it is finite.
class Program::SquaresOfGradients : public GradientListener {
 public:
  // `next` hears of each gradient afterwards; may be null.
  SquaresOfGradients(Lane& lane, const ParameterStore& store, void* sums,
                     GradientListener* next = nullptr)
      : lane_(lane), store_(store), sums_(static_cast<std::byte*>(sums)), next_(next) {}

  void gradient_ready(int parameter) override {
    // Once a step, however many micro-batches it has.
    const std::string_view tag = lane_.tag();
    lane_.set_tag("optimizer");
    void* sum = sums_ + static_cast<std::size_t>(parameter) * sizeof(double);
    launch(lane_, SumOfSquaresArgs{store_.grad(parameter), {sum, DType::f64, {1}}});
    lane_.set_tag(tag);
    if (next_ != nullptr) next_->gradient_ready(parameter);
  }

 private:
  Lane& lane_;
  const ParameterStore& store_;
  std::byte* sums_;
  GradientListener* next_;
};

Program::Program(Device& device, const ParameterTable& table, const ProgramConfig& config,
                 const ArenaSizes& sizes)
    : config_(config),
      table_(table),
      lane_(device.create_lane()),
      store_(device, table, {config.compute, config.train}),
      saved_memory_(device.allocate(sizes.saved, "activations")),
      scratch_memory_(device.allocate(sizes.scratch, "temporaries")),
      input_memory_(device.allocate(input_bytes() - sums_bytes(table), "inputs")),
      sums_memory_(device.allocate(sums_bytes(table), "sums")),
      saved_("activations", saved_memory_->address(), sizes.saved),
      scratch_("temporaries", scratch_memory_->address(), sizes.scratch),
      host_sums_(static_cast<std::size_t>(table.size()) + 1),
      host_own_sums_(static_cast<std::size_t>(table.size())) {
  lane_->reserve_workspace(sizes.workspace);
  model_ = std::make_unique<Transformer>(
      *lane_, config_.model, table, TransformerOptions{config_.head_block_rows, config_.z_loss});
}

std::size_t Program::input_bytes() const {
  const auto tokens = static_cast<std::size_t>(config_.micro_batch * config_.seq_len);
  return kInputTensors * input_tensor_bytes(config_) + aligned(tokens * 4) + sums_bytes(table_);
}

PassInputs Program::inputs(std::int64_t rows) const {
  auto* base = static_cast<std::byte*>(input_memory_->address());
  const std::size_t step = input_tensor_bytes(config_);
  const Shape shape{rows * config_.seq_len};
  const auto tensor = [&](std::size_t index) {
    return Tensor{base + index * step, DType::i32, shape};
  };
  return {rows, config_.seq_len, tensor(0), tensor(1), tensor(2), tensor(3)};
}

void* Program::squares_address() const {
  return static_cast<std::byte*>(sums_memory_->address()) + kAlignment;
}

void* Program::own_squares_address() const {
  return static_cast<std::byte*>(squares_address()) + squares_bytes(table_);
}

void Program::run_micro_batch(Lane& lane, const HostBatch& batch, const MicroBatchPlace& place,
                              bool train) {
  BELAY_CHECK(batch.rows >= 1 && batch.rows <= config_.micro_batch);
  saved_.release(0);
  scratch_.release(0);
  Pass pass{lane,
            store_,
            saved_,
            scratch_,
            inputs(batch.rows),
            {config_.seed, place.step, 0},
            place.first_row,
            train,
            loss_multiplier_,
            config_.protection};
  lane.copy_in(pass.inputs.tokens.data, batch.tokens, pass.inputs.tokens.bytes());
  lane.copy_in(pass.inputs.targets.data, batch.targets, pass.inputs.targets.bytes());
  lane.copy_in(pass.inputs.positions.data, batch.positions, pass.inputs.positions.bytes());
  lane.copy_in(pass.inputs.doc_begin.data, batch.doc_begin, pass.inputs.doc_begin.bytes());

  auto* nll_base = static_cast<std::byte*>(input_memory_->address()) +
                   kInputTensors * input_tensor_bytes(config_);
  const Tensor nll{nll_base, DType::f32, {pass.inputs.token_count()}};
  model_->forward(pass, activations_, nll);
  launch(lane, SumArgs{nll, {sums_memory_->address(), DType::f64, {1}}});
  if (!train) return;
  SquaresOfGradients squares(lane, store_, squares_address());
  const bool exchanging = exchange_ != nullptr && (place.last || joins_every_round());
  if (place.last && stable_ == nullptr) pass.listener = &squares;
  SquaresOfGradients own(lane, store_, own_squares_address(), exchange_);
  if (exchanging) {
    const bool pipelined = exchange_->pipelined();
    exchange_->begin(lane, pass.listener,
                     pipelined ? RoundPlace{place.first, place.last} : RoundPlace{});
    // A stable sum keeps no trace of what was whose.
    pass.listener = stable_ == nullptr ? static_cast<GradientListener*>(&own) : exchange_;
  }
  model_->backward(pass, activations_);
  if (exchanging) exchange_->finish();
  if (stable_ != nullptr) {
    add_round(lane, place.last);
  } else if (exchanging) {
    note_own_squares(lane, place.first || !joins_every_round());
  }
}

// Before the next micro-batch's take their place.
void Program::note_own_squares(Lane& lane, bool first) {
  if (first) own_finite_ = true;
  for (const double square : read_squares(lane, own_squares_address(), host_own_sums_)) {
    own_finite_ = own_finite_ && std::isfinite(square);
  }
}

void Program::add_round(Lane& lane, bool last) {
  stable_->add(lane);
  if (!last) return;
  stable_->finish(lane);
  SquaresOfGradients squares(lane, store_, squares_address());
  for (int index = 0; index < table_.size(); ++index) squares.gradient_ready(index);
}

void Program::join_last_round(Lane& lane) {
  BELAY_CHECK(exchange_ != nullptr && joins_every_round());
  SquaresOfGradients squares(lane, store_, squares_address());
  const bool pipelined = exchange_->pipelined();
  exchange_->begin(lane, pipelined ? &squares : nullptr, {!pipelined, true});
  exchange_->announce_all();
  exchange_->finish();
  if (stable_ != nullptr) add_round(lane, true);
}

void Program::clear_loss(Lane& lane) {
  launch(lane, FillArgs{{sums_memory_->address(), DType::f64, {1}}, 0.0});
}

double Program::read_loss(Lane& lane) {
  lane.copy_out(host_sums_.data(), sums_memory_->address(), sizeof(double));
  lane.wait();
  return host_sums_[0];
}

std::span<const double> Program::read_gradient_squares(Lane& lane) {
  return read_squares(lane, squares_address(), host_sums_);
}

std::span<const double> Program::read_squares(Lane& lane, const void* address,
                                              std::vector<double>& host) {
  const auto count = static_cast<std::size_t>(table_.size());
  lane.copy_out(host.data(), address, count * sizeof(double));
  lane.wait();
  return {host.data(), count};
}

void Program::update(Lane& lane, const UpdateSettings& settings) {
  lane.set_tag("optimizer");
  const auto step = static_cast<double>(settings.step);
  for (int index = 0; index < table_.size(); ++index) {
    const Shape flat{table_[index].elements()};
    AdamwArgs args;
    args.weights = store_.master(index).reshaped(flat);
    args.grad = store_.grad(index).reshaped(flat);
    args.m = store_.m(index).reshaped(flat);
    args.v = store_.v(index).reshaped(flat);
    const Tensor copy = store_.copy(index);
    if (!copy.empty()) args.copy = copy.reshaped(flat);
    args.lr = static_cast<float>(settings.lr);
    args.beta1 = static_cast<float>(settings.beta1);
    args.beta2 = static_cast<float>(settings.beta2);
    args.eps = static_cast<float>(settings.eps);
    args.weight_decay = table_[index].decay ? static_cast<float>(settings.weight_decay) : 0.0F;
    args.correction1 = static_cast<float>(1.0 - std::pow(settings.beta1, step));
    args.correction2 = static_cast<float>(1.0 - std::pow(settings.beta2, step));
    args.grad_scale = settings.grad_scale;
    launch(lane, args);
  }
}

void Program::clear_gradients(Lane& lane) {
  for (int index = 0; index < table_.size(); ++index) {
    launch(lane, FillArgs{store_.grad(index), 0.0});
  }
}

void Program::clear_state(Lane& lane) {
  for (int index = 0; index < table_.size(); ++index) {
    for (const Tensor& tensor : {store_.grad(index), store_.m(index), store_.v(index)}) {
      launch(lane, FillArgs{tensor, 0.0});
    }
  }
  lane.wait();
}

void Program::record_step(Lane& lane) {
  HostBatch batch;
  batch.rows = config_.micro_batch;
  clear_loss(lane);
  run_micro_batch(lane, batch, {}, config_.train);
  if (!config_.train) return;
  update(lane, {});
}

}  // namespace belay
