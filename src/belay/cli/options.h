#pragma once
// Option values that several subcommands take.

#include <string>

#include "belay/base/dtype.h"
#include "belay/base/error.h"

namespace belay {

// The value of --dtype: a type that models compute in. Error(usage) otherwise.
inline DType parse_compute_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (dtype == DType::f32 || dtype == DType::bf16) return *dtype;
  fail(ExitCode::usage, "--dtype '{}' is not one of f32, bf16", text);
}

}  // namespace belay
