#pragma once
// A Pass is one micro-batch's trip through the model: its lane, its inputs on the device, the
// arenas that its activations live in and the random key. Several may be under way at once.

#include <cstdint>

#include "belay/base/arena.h"
#include "belay/base/philox.h"
#include "belay/device/device.h"
#include "belay/model/parameter_store.h"

namespace belay {

// The inputs of a micro-batch, in device memory: [rows, seq_len] each, i32.
struct PassInputs {
  std::int64_t rows = 0;
  std::int64_t seq_len = 0;
  Tensor tokens;
  Tensor targets;    // -1: not counted
  Tensor positions;  // restart at every document
  Tensor doc_begin;  // first position in the row that a token may attend to

  [[nodiscard]] std::int64_t token_count() const { return rows * seq_len; }
};

// What is computed in f32 although operands are 16 bits wide.
struct Protection {
  bool norms = true;       // statistics
  bool softmax = true;     // attention scores, and the logits of the loss
  bool reductions = true;  // sums over rows: the gradients of biases
};

// Hears of each parameter, by its index in the table, when a backward pass has launched the last
// addition to its gradient: once per pass. What it launches then finds the gradient in the caches.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  virtual void gradient_ready(int parameter) = 0;
};

// Hears that the parameters of a unit (shard_map.h) are used next: those in front of the layers, of
// a layer, or behind them.
class UnitListener {
 public:
  virtual ~UnitListener() = default;
  virtual void use(int unit) = 0;
};

struct Pass {
  Lane& lane;
  const ParameterStore& parameters;
  Arena& saved;    // what backward needs
  Arena& scratch;  // what the present layer needs
  PassInputs inputs;
  RandomKey key;  // seed and step of dropout; the stream is set by each use
  std::uint64_t first_row =
      0;              // of this micro-batch within the global batch: dropout depends on it
  bool train = true;  // dropout on, activations kept
  // The loss is multiplied by this before backward, a power of two; gradients carry the factor.
  float loss_multiplier = 1.0F;
  Protection protection{};
  GradientListener* listener = nullptr;  // of a pass whose gradients are complete after it
  UnitListener* units = nullptr;

  void use(int unit) const {
    if (units != nullptr) units->use(unit);
  }

  // `parameter` may be -1: a layer without it.
  void gradient_ready(int parameter) const {
    if (listener != nullptr && parameter >= 0) listener->gradient_ready(parameter);
  }

  [[nodiscard]] DType dtype() const { return parameters.compute(); }
  // For an operator whose protection is switched so.
  [[nodiscard]] Inside inside(bool protect) const {
    if (protect) return Inside::full;
    return lane.device().overflow() == Overflow::saturate ? Inside::saturated : Inside::stored;
  }
  [[nodiscard]] Tensor keep(DType type, const Shape& shape) const {
    return saved.allocate(type, shape);
  }
  [[nodiscard]] Tensor keep(const Shape& shape) const { return saved.allocate(dtype(), shape); }
  [[nodiscard]] Tensor temporary(const Shape& shape) const {
    return scratch.allocate(dtype(), shape);
  }
};

}  // namespace belay
