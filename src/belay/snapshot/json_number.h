#pragma once
// Whole numbers out of parsed JSON. The JSON library converts silently, and a float that does not
// fit an integer is undefined behaviour there.

#include <cstdint>
#include <limits>
#include <string>

#include "belay/base/error.h"

namespace belay {

// Error(data) when `key` is not a whole number of type T.
template <class T, class Json>
T whole_number(const Json& object, const char* key, const std::string& path) {
  const auto& value = object.at(key);
  const bool fits = value.is_number_unsigned()
                        ? value.template get<std::uint64_t>() <=
                              static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                        : value.is_number_integer() && std::numeric_limits<T>::is_signed &&
                              value.template get<std::int64_t>() >=
                                  static_cast<std::int64_t>(std::numeric_limits<T>::min());
  if (!fits) fail(ExitCode::data, "{}: {} is not a whole number that fits", path, key);
  return value.template get<T>();
}

}  // namespace belay
