#include "belay/base/dtype.h"

#include <array>
#include <utility>

namespace belay {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames = {{
    {DType::f64, "f64"},
    {DType::f32, "f32"},
    {DType::bf16, "bf16"},
    {DType::f16, "f16"},
    {DType::i64, "i64"},
    {DType::i32, "i32"},
    {DType::u16, "u16"},
    {DType::u8, "u8"},
}};

}  // namespace

std::string_view name_of(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

}  // namespace belay
