// Activations by elementwise passes. What each kind keeps for the backward pass: the logistic
// function or the normal distribution of its argument, and the activation itself where it gates.

#include "belay/device/plain/workbench.h"

namespace belay::plain {
namespace {

// gelu_tanh = x sigmoid(x (kOne + kCube x^2)): (1 + tanh u) / 2 = sigmoid(2 u)
constexpr float kOne = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float kCube = kOne * 0.044715F;

// share = sigmoid(...) or P(X <= x), of which the activation is x times.
void write_share(Activation kind, const Rows& x, const Rows& share) {
  switch (kind) {
    case Activation::gelu_tanh:
      combine(Binary::multiply, x, x, share);
      affine(share, kCube, kOne, share);
      combine(Binary::multiply, share, x, share);
      return apply(Function::sigmoid, share, share);
    case Activation::gelu_erf:
      return apply(Function::normal_below, x, share);
    case Activation::silu:
      return apply(Function::sigmoid, x, share);
  }
}

// d_x = d (share + x share'(x)); a and b are scratch, dst may be x.
void write_gradient(Activation kind, const Rows& x, const Rows& share, const Rows& d, const Rows& a,
                    const Rows& b, const Rows& dst) {
  if (kind == Activation::gelu_erf) {
    apply(Function::normal_density, x, a);
    combine(Binary::multiply, a, x, a);
    combine(Binary::add, a, share, a);
    return combine(Binary::multiply, d, a, dst);
  }
  combine(Binary::multiply, d, x, a);
  combine(Binary::sigmoid_gradient, a, share, a);
  if (kind == Activation::gelu_tanh) {
    combine(Binary::multiply, x, x, b);
    affine(b, 3.0F * kCube, kOne, b);
    combine(Binary::multiply, a, b, a);
  }
  combine(Binary::multiply, d, share, b);
  combine(Binary::add, a, b, dst);
}

struct Halves {
  Rows gate;
  Rows up;
};
Halves halves(const Tensor& src, std::int64_t ffn, bool gated) {
  if (!gated) return {all(src), {}};
  return {columns(src, 0, ffn), columns(src, ffn, 2 * ffn)};
}

}  // namespace

Composition compose(const Bench& bench, const ActivationForwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const Tensor share = work.keep(args.dst.dtype, args.dst.shape);
  const Tensor activated = args.gated ? work.keep(args.dst.dtype, args.dst.shape) : args.dst;
  composition.run = [=] {
    const Halves src = halves(args.src, args.dst.dim(1), args.gated);
    write_share(args.kind, src.gate, all(share));
    combine(Binary::multiply, src.gate, all(share), all(activated));
    if (args.gated) combine(Binary::multiply, all(activated), src.up, all(args.dst));
  };
  return composition;
}

Composition compose(const Bench& bench, const ActivationBackwardArgs& args) {
  Composition composition;
  Workbench work(bench, composition);
  const DType dtype = args.d_dst.dtype;
  const Shape shape = args.d_dst.shape;
  const Tensor share = work.keep(dtype, shape);
  const Tensor activated = args.gated ? work.keep(dtype, shape) : Tensor{};
  const Tensor a = work.scratch(dtype, shape);
  const Tensor b = work.scratch(dtype, shape);
  const Tensor d_activated = args.gated ? work.scratch(dtype, shape) : args.d_dst;
  composition.prepare = [=] {
    const Halves src = halves(args.src, args.d_dst.dim(1), args.gated);
    write_share(args.kind, src.gate, all(share));
    if (args.gated) combine(Binary::multiply, src.gate, all(share), all(activated));
  };
  composition.run = [=] {
    const Halves src = halves(args.src, args.d_dst.dim(1), args.gated);
    const Halves d_src = halves(args.d_src, args.d_dst.dim(1), args.gated);
    if (args.gated) {
      combine(Binary::multiply, all(args.d_dst), src.up, all(d_activated));
      combine(Binary::multiply, all(args.d_dst), all(activated), d_src.up);
    }
    write_gradient(args.kind, src.gate, all(share), all(d_activated), all(a), all(b), d_src.gate);
  };
  return composition;
}

}  // namespace belay::plain
