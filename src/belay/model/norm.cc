#include "belay/model/norm.h"

namespace belay {

Norm Norm::find(const ParameterTable& table, const ModelConfig& config, const std::string& name) {
  const Norm norm{config.norm(), table.find(name + ".weight"), table.find(name + ".bias"),
                  static_cast<float>(config.norm_eps)};
  BELAY_CHECK(norm.weight >= 0);
  return norm;
}

Norm::Saved Norm::forward(const Pass& pass, const Tensor& residual, const Tensor& delta,
                          const Tensor& dst) const {
  const std::int64_t tokens = residual.dim(0);
  Saved saved;
  saved.sum = delta.empty() ? residual : pass.keep(residual.shape);
  saved.rstd = pass.keep(DType::f32, {tokens});
  if (kind == NormKind::layer) saved.mean = pass.keep(DType::f32, {tokens});
  NormForwardArgs args;
  args.kind = kind;
  args.src = delta.empty() ? residual : delta;
  args.residual = delta.empty() ? Tensor{} : residual;
  args.weight = pass.parameters.weight(weight);
  args.bias = bias < 0 ? Tensor{} : pass.parameters.weight(bias);
  args.eps = eps;
  args.sum = delta.empty() ? Tensor{} : saved.sum;
  args.dst = dst;
  args.mean = saved.mean;
  args.rstd = saved.rstd;
  args.inside = pass.inside(pass.protection.norms);
  launch(pass.lane, args);
  return saved;
}

void Norm::backward(const Pass& pass, const Saved& saved, const Tensor& d_dst, const Tensor& d_sum,
                    bool add) const {
  NormBackwardArgs args;
  args.kind = kind;
  args.src = saved.sum;
  args.weight = pass.parameters.weight(weight);
  args.mean = saved.mean;
  args.rstd = saved.rstd;
  args.d_dst = d_dst;
  args.d_residual = add ? d_sum : Tensor{};
  args.d_src = d_sum;
  args.d_weight = pass.parameters.grad(weight);
  args.d_bias = bias < 0 ? Tensor{} : pass.parameters.grad(bias);
  launch(pass.lane, args);
  pass.gradient_ready(weight);
  pass.gradient_ready(bias);
}

}  // namespace belay
