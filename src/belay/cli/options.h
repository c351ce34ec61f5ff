#pragma once
// Option values that several subcommands take.

#include <CLI/CLI.hpp>
#include <string>

#include "belay/base/dtype.h"
#include "belay/base/error.h"

namespace belay {

// The value of --dtype: a type that models compute in. Error(usage) otherwise.
inline DType parse_compute_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (dtype && is_storage(*dtype)) return *dtype;
  fail(ExitCode::usage, "--dtype '{}' is not one of f32, bf16, f16", text);
}

// Checks of numbers whose messages name the value and the bound.
inline CLI::Validator above_zero() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value > 0) return {};
            return text + " is not a number above 0";
          },
          "> 0"};
}
inline CLI::Validator at_least_zero() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= 0) return {};
            return text + " is not a number from 0 on";
          },
          ">= 0"};
}

}  // namespace belay
