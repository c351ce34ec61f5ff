#include "belay/model/linear.h"

namespace belay {

Linear Linear::find(const ParameterTable& table, const std::string& name) {
  const Linear linear{table.find(name + ".weight"), table.find(name + ".bias")};
  BELAY_CHECK(linear.weight >= 0);
  return linear;
}

void Linear::forward(const Pass& pass, const Tensor& src, const Tensor& dst) const {
  const Tensor w = pass.parameters.weight(weight);
  const Tensor b = bias < 0 ? Tensor{} : pass.parameters.weight(bias);
  launch(pass.lane, MatmulArgs{src, w, b, dst, false, true, false});
}

void Linear::backward(const Pass& pass, const Tensor& src, const Tensor& d_dst,
                      const Tensor& d_src) const {
  const Tensor grad = pass.parameters.grad(weight);
  launch(pass.lane, MatmulArgs{d_dst, src, {}, grad, true, false, true});
  pass.gradient_ready(weight);
  if (bias >= 0) {
    launch(pass.lane, ColumnSumArgs{d_dst, pass.parameters.grad(bias),
                                    pass.inside(pass.protection.reductions)});
    pass.gradient_ready(bias);
  }
  if (!d_src.empty()) {
    const Tensor w = pass.parameters.weight(weight);
    launch(pass.lane, MatmulArgs{d_dst, w, {}, d_src, false, false, false});
  }
}

}  // namespace belay
