#pragma once
// y = x W^T + b and its gradients.

#include "belay/model/pass.h"

namespace belay {

// Indices into the parameter table; bias -1: none.
struct Linear {
  int weight = -1;
  int bias = -1;

  // "<name>.weight" and, where the table has it, "<name>.bias".
  static Linear find(const ParameterTable& table, const std::string& name);

  // src [tokens, in] -> dst [tokens, out].
  void forward(const Pass& pass, const Tensor& src, const Tensor& dst) const;
  // Adds to the parameter gradients; overwrites d_src unless it is empty.
  void backward(const Pass& pass, const Tensor& src, const Tensor& d_dst,
                const Tensor& d_src) const;
};

}  // namespace belay
