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

std::size_t doubles(std::int64_t count) {
  return aligned(static_cast<std::size_t>(count) * sizeof(double));
}

// The loss, and at the next aligned addresses the sums of squares of every piece of the gradients
// of all ranks, and of every parameter's gradient of this one alone.
std::size_t sums_bytes(const ParameterTable& table) {
  return kAlignment + doubles(ShardMap(table, {}).piece_count()) + doubles(table.size());
}

}  // namespace

// Looks at each gradient once it is complete: the norm for clipping, and whether it is finite.
class Program::SquaresOfGradients : public GradientListener {
 public:
  SquaresOfGradients(Program& program, Lane& lane) : program_(program), lane_(lane) {}

  void gradient_ready(int parameter) override {
    // Once a step, however many micro-batches it has.
    const ParameterStore& store = program_.store_;
    program_.take_squares(lane_, store.shards().runs_of_parameter(parameter));
  }

 private:
  Program& program_;
  Lane& lane_;
};

// Of this rank's gradients, before they go to `next`.
class Program::OwnSquares : public GradientListener {
 public:
  OwnSquares(Program& program, Lane& lane, GradientListener& next)
      : program_(program), lane_(lane), next_(next) {}

  void gradient_ready(int parameter) override {
    const std::string_view tag = lane_.tag();
    lane_.set_tag("optimizer");
    double* const sum = program_.own_squares_address() + parameter;
    launch(lane_, SumOfSquaresArgs{program_.store_.grad(parameter), {sum, DType::f64, {1}}});
    lane_.set_tag(tag);
    next_.gradient_ready(parameter);
  }

 private:
  Program& program_;
  Lane& lane_;
  GradientListener& next_;
};

Program::Program(Device& device, const ParameterTable& table, const ProgramConfig& config,
                 const ArenaSizes& sizes)
    : config_(config),
      table_(table),
      lane_(device.create_lane()),
      store_(device, table, {config.compute, config.train, config.shard}),
      saved_memory_(device.allocate(sizes.saved, "activations")),
      scratch_memory_(device.allocate(sizes.scratch, "temporaries")),
      input_memory_(device.allocate(input_bytes() - sums_bytes(table), "inputs")),
      sums_memory_(device.allocate(sums_bytes(table), "sums")),
      saved_("activations", saved_memory_->address(), sizes.saved),
      scratch_("temporaries", scratch_memory_->address(), sizes.scratch),
      host_pieces_(static_cast<std::size_t>(store_.shards().piece_count())),
      host_squares_(static_cast<std::size_t>(table.size())),
      host_own_squares_(static_cast<std::size_t>(table.size())),
      shard_ready_([this](std::span<const ShardRun> runs) { take_squares(*squares_lane_, runs); }) {
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

double* Program::squares_address() const {
  return reinterpret_cast<double*>(static_cast<std::byte*>(sums_memory_->address()) + kAlignment);
}

double* Program::own_squares_address() const {
  return squares_address() + doubles(store_.shards().piece_count()) / sizeof(double);
}

void Program::take_squares(Lane& lane, std::span<const ShardRun> runs) {
  const std::string_view tag = lane.tag();
  lane.set_tag("optimizer");
  const std::int64_t piece = store_.shards().piece_elements();
  for (const ShardRun& run : runs) {
    SumOfSquaresArgs args;
    args.src = store_.owned_grad(run);
    args.piece = piece;
    args.dst = {squares_address() + run.piece, DType::f64, {args.pieces()}};
    launch(lane, args);
  }
  lane.set_tag(tag);
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
  if (sharded_ != nullptr && sharded_->gathers_weights()) {
    pass.units = sharded_;
    sharded_->begin_weights(lane, train);
  }
  model_->forward(pass, activations_, nll);
  launch(lane, SumArgs{nll, {sums_memory_->address(), DType::f64, {1}}});
  if (train) run_backward(pass, place);
}

void Program::run_backward(Pass& pass, const MicroBatchPlace& place) {
  Lane& lane = pass.lane;
  squares_lane_ = &lane;
  SquaresOfGradients squares(*this, lane);
  // Sums of a stable run are complete only when all rounds have been added.
  const bool complete = place.last && stable_ == nullptr;
  const bool exchanging = has_ranks() && (place.last || joins_every_round());
  if (!exchanging) {
    if (complete) pass.listener = &squares;
    model_->backward(pass, activations_);
  } else {
    GradientListener* exchange = exchange_;
    if (sharded_ != nullptr) {
      exchange = sharded_;
      sharded_->begin_gradients(lane, adds_rounds() && !place.first,
                                complete ? &shard_ready_ : nullptr);
    } else {
      exchange_->begin(lane, complete ? &squares : nullptr,
                       exchange_->pipelined() ? RoundPlace{place.first, place.last} : RoundPlace{});
    }
    OwnSquares own(*this, lane, *exchange);
    // A stable sum keeps no trace of what was whose.
    pass.listener = stable_ == nullptr ? static_cast<GradientListener*>(&own) : exchange;
    model_->backward(pass, activations_);
    if (sharded_ != nullptr) {
      sharded_->finish_gradients(place.last || !adds_rounds());
    } else {
      exchange_->finish();
    }
  }
  if (stable_ != nullptr) {
    add_round(lane, place.last);
  } else if (exchanging) {
    note_own_squares(lane, place.first || !joins_every_round());
  }
}

// Before the next micro-batch's take their place.
void Program::note_own_squares(Lane& lane, bool first) {
  if (first) own_finite_ = true;
  const std::size_t bytes = host_own_squares_.size() * sizeof(double);
  lane.copy_out(host_own_squares_.data(), own_squares_address(), bytes);
  lane.wait();
  for (const double square : host_own_squares_) own_finite_ = own_finite_ && std::isfinite(square);
}

void Program::add_round(Lane& lane, bool last) {
  stable_->add(lane);
  if (!last) return;
  stable_->finish(lane);
  take_squares(lane, store_.shards().runs());
}

void Program::join_last_round(Lane& lane) {
  BELAY_CHECK(has_ranks() && joins_every_round());
  squares_lane_ = &lane;
  SquaresOfGradients squares(*this, lane);
  if (sharded_ != nullptr) {
    sharded_->join_training(lane, adds_rounds(), stable_ == nullptr ? &shard_ready_ : nullptr);
  } else {
    const bool pipelined = exchange_->pipelined();
    exchange_->begin(lane, pipelined ? &squares : nullptr, {!pipelined, true});
    exchange_->announce_all();
    exchange_->finish();
  }
  if (stable_ != nullptr) add_round(lane, true);
}

void Program::join_forward(Lane& lane) {
  if (sharded_ != nullptr) sharded_->join_forward(lane);
}

void Program::clear_loss(Lane& lane) {
  launch(lane, FillArgs{{sums_memory_->address(), DType::f64, {1}}, 0.0});
}

double Program::read_loss(Lane& lane) {
  double loss = 0;
  lane.copy_out(&loss, sums_memory_->address(), sizeof(double));
  lane.wait();
  return loss;
}

std::span<const double> Program::read_gradient_squares(Lane& lane) {
  lane.copy_out(host_pieces_.data(), squares_address(), host_pieces_.size() * sizeof(double));
  lane.wait();
  // Those of pieces that other ranks own are zeros here.
  if (sharded_ != nullptr) sharded_->sum(host_pieces_);
  for (int index = 0; index < table_.size(); ++index) {
    double sum = 0;
    const ShardMap& map = store_.shards();
    for (std::int64_t piece = map.first_piece(index); piece < map.first_piece(index + 1); ++piece) {
      sum += host_pieces_[static_cast<std::size_t>(piece)];
    }
    host_squares_[static_cast<std::size_t>(index)] = sum;
  }
  return host_squares_;
}

void Program::update(Lane& lane, const UpdateSettings& settings) {
  lane.set_tag("optimizer");
  const auto step = static_cast<double>(settings.step);
  AdamwArgs args;
  args.lr = static_cast<float>(settings.lr);
  args.beta1 = static_cast<float>(settings.beta1);
  args.beta2 = static_cast<float>(settings.beta2);
  args.eps = static_cast<float>(settings.eps);
  args.correction1 = static_cast<float>(1.0 - std::pow(settings.beta1, step));
  args.correction2 = static_cast<float>(1.0 - std::pow(settings.beta2, step));
  args.grad_scale = settings.grad_scale;
  const ShardMap& map = store_.shards();
  for (int number = 0; number < static_cast<int>(map.groups().size()); ++number) {
    for (const ShardRun& run : map.runs_of(map.groups()[static_cast<std::size_t>(number)])) {
      args.weights = store_.owned(ParameterStore::State::masters, run);
      args.grad = store_.owned_grad(run);
      args.m = store_.owned(ParameterStore::State::m, run);
      args.v = store_.owned(ParameterStore::State::v, run);
      args.copy = store_.owned_copy(run);
      const bool decay = table_[run.parameter].decay;
      args.weight_decay = decay ? static_cast<float>(settings.weight_decay) : 0.0F;
      launch(lane, args);
    }
    if (sharded_ != nullptr) sharded_->send_weights(lane, number);
  }
  if (sharded_ != nullptr) sharded_->finish_weights(lane);
}

void Program::clear_gradients(Lane& lane) {
  store_.each_gradient([&](const Tensor& gradient) { launch(lane, FillArgs{gradient, 0.0}); });
}

void Program::clear_state(Lane& lane) {
  clear_gradients(lane);
  for (const ShardRun& run : store_.shards().runs()) {
    for (const auto moment : {ParameterStore::State::m, ParameterStore::State::v}) {
      launch(lane, FillArgs{store_.owned(moment, run), 0.0});
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
