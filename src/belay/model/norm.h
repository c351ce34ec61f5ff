#pragma once
// The normalisation layer (LayerNorm or RMSNorm) with the residual addition in front of it.

#include "belay/model/pass.h"

namespace belay {

struct Norm {
  NormKind kind = NormKind::rms;
  int weight = -1;
  int bias = -1;
  float eps = 1e-5F;

  static Norm find(const ParameterTable& table, const ModelConfig& config, const std::string& name);

  // What backward needs.
  struct Saved {
    Tensor sum;  // [tokens, hidden]: what was normalised
    Tensor mean;
    Tensor rstd;
  };

  // sum = residual (+ delta); dst = norm(sum). With an empty delta, sum is residual itself;
  // otherwise it goes to a new tensor of `saved`.
  Saved forward(const Pass& pass, const Tensor& residual, const Tensor& delta,
                const Tensor& dst) const;
  // d_sum = gradient through the norm (+ d_sum's present value when add is set), in place.
  void backward(const Pass& pass, const Saved& saved, const Tensor& d_dst, const Tensor& d_sum,
                bool add) const;
};

}  // namespace belay
