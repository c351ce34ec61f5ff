#pragma once
// Typed TOML configuration, driven by data. A config struct describes itself with one table of
// fields; reading, error messages, --set overrides, writing the effective configuration and the
// documentation table all follow from that table:
//
//   struct TrainConfig {
//     std::int64_t steps = 1000;
//     static constexpr std::string_view kSection = "train";
//     static std::span<const config::Field> fields();
//   };
//   std::span<const config::Field> TrainConfig::fields() {
//     static const config::Field kFields[] = {
//         config::field<&TrainConfig::steps>("steps", "optimizer steps to run",
//                                            config::at_least(1))};
//     return kFields;
//   }
//
// Member types: bool, integers, double, std::string (free, or one_of), DType, enums (with one_of:
// the choice's index is the enumerator's value), std::array<double, N>, and std::optional of these.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "belay/base/dtype.h"

namespace belay::config {

enum class Kind { boolean, integer, real, text, choice, reals };

// A field's value outside its struct; monostate is an unset optional. A choice is text.
using Value =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<double>>;

// What a value must satisfy. Bounds hold for numbers and for each element of an array.
struct Rule {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;   // low itself is excluded
  bool open_high = false;  // high itself is excluded
  std::span<const std::string_view> choices{};
};

constexpr Rule any() {
  return {};
}
constexpr Rule at_least(double low) {
  return {.low = low};
}
constexpr Rule positive() {
  return {.low = 0, .open_low = true};
}
constexpr Rule between(double low, double high) {
  return {.low = low, .high = high};
}
// low <= value < high, as for dropout or Adam's betas.
constexpr Rule below(double low, double high) {
  return {.low = low, .high = high, .open_high = true};
}
// The names must outlive the field table.
constexpr Rule one_of(std::span<const std::string_view> choices) {
  return {.choices = choices};
}

struct Field {
  std::string_view name;
  std::string_view doc;
  Kind kind = Kind::text;
  std::size_t length = 0;  // of an array
  Rule rule;
  Value (*read)(const void* config, const Field& field) = nullptr;
  // The value has been checked against kind, length and rule.
  void (*write)(void* config, const Field& field, const Value& value) = nullptr;
};

namespace detail {

template <class T>
struct MemberPointer;
template <class Struct, class Member>
struct MemberPointer<Member Struct::*> {
  using Owner = Struct;
};

// object.*first.*second...
template <auto first, auto... rest, class Object>
auto& follow(Object& object) {
  if constexpr (sizeof...(rest) == 0) {
    return object.*first;
  } else {
    return follow<rest...>(object.*first);
  }
}

template <class T>
struct Unwrapped {
  using Type = T;
  static constexpr bool kOptional = false;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
  static constexpr bool kOptional = true;
};

template <class T>
inline constexpr std::size_t kArrayLength = 0;
template <std::size_t N>
inline constexpr std::size_t kArrayLength<std::array<double, N>> = N;

template <class T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return Kind::boolean;
  if constexpr (std::is_enum_v<T>) return Kind::choice;
  if constexpr (std::is_integral_v<T>) return Kind::integer;
  if constexpr (std::is_floating_point_v<T>) return Kind::real;
  if constexpr (std::is_same_v<T, std::string>) return Kind::text;
  return Kind::reals;
}

template <class T>
Value to_value(const T& member, const Field& field) {
  if constexpr (std::is_same_v<T, DType>) {
    return std::string(name_of(member));
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(field.rule.choices[static_cast<std::size_t>(member)]);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    return member;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(member);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(member);
  } else {
    return std::vector<double>(member.begin(), member.end());
  }
}

template <class T>
void from_value(T& member, const Field& field, const Value& value) {
  if constexpr (std::is_same_v<T, DType>) {
    member = *parse_dtype(std::get<std::string>(value));
  } else if constexpr (std::is_enum_v<T>) {
    const auto& name = std::get<std::string>(value);
    for (std::size_t index = 0; index < field.rule.choices.size(); ++index) {
      if (field.rule.choices[index] == name) member = static_cast<T>(index);
    }
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    member = std::get<T>(value);
  } else if constexpr (std::is_integral_v<T>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    member = static_cast<T>(std::get<double>(value));
  } else {
    const auto& values = std::get<std::vector<double>>(value);
    for (std::size_t index = 0; index < member.size(); ++index) member[index] = values[index];
  }
}

// Narrow integers bound what the file may say.
template <class T>
constexpr Rule limit_to_type(Rule rule) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const auto low = static_cast<double>(std::numeric_limits<T>::min());
    if (rule.low < low) rule.low = low;
    if constexpr (sizeof(T) < sizeof(std::int64_t)) {
      const auto high = static_cast<double>(std::numeric_limits<T>::max());
      if (rule.high > high) rule.high = high;
    }
  }
  return rule;
}

}  // namespace detail

// field<&Config::member>, or field<&Config::part, &Part::member> for a member of a member.
template <auto first, auto... rest>
Field field(std::string_view name, std::string_view doc, Rule rule = {}) {
  using Owner = typename detail::MemberPointer<decltype(first)>::Owner;
  using Slot =
      std::remove_cvref_t<decltype(detail::follow<first, rest...>(std::declval<Owner&>()))>;
  using Wrapped = detail::Unwrapped<Slot>;
  using Type = typename Wrapped::Type;
  return {
      .name = name,
      .doc = doc,
      .kind = rule.choices.empty() ? detail::kind_of<Type>() : Kind::choice,
      .length = detail::kArrayLength<Type>,
      .rule = detail::limit_to_type<Type>(rule),
      .read = [](const void* config, const Field& self) -> Value {
        const auto& slot = detail::follow<first, rest...>(*static_cast<const Owner*>(config));
        if constexpr (Wrapped::kOptional) {
          return slot ? detail::to_value(*slot, self) : Value{};
        } else {
          return detail::to_value(slot, self);
        }
      },
      .write =
          [](void* config, const Field& self, const Value& value) {
            auto& slot = detail::follow<first, rest...>(*static_cast<Owner*>(config));
            if constexpr (Wrapped::kOptional) {
              detail::from_value(slot.emplace(), self, value);
            } else {
              detail::from_value(slot, self, value);
            }
          },
  };
}

// One [section] of the file, bound to the struct that receives it. Several may share a name: the
// file then shows one section with the keys of all.
struct Section {
  std::string_view name;
  std::span<const Field> fields;
  void* object = nullptr;
};

template <class Config>
Section section(Config& config) {
  return {Config::kSection, Config::fields(), &config};
}

// Reads TOML text, whose origin is called `source` in messages, into the sections. Keys that it
// does not name keep their values. Throws Error(usage) naming source, line, key, value and the way
// out.
void read_text(std::string_view text, std::string_view source, std::span<const Section> sections);

// Applies one "section.key=value"; the value is TOML, and a plain word is taken as a string.
void apply_override(std::string_view assignment, std::span<const Section> sections);

// The configuration in force as TOML with the docs as comments; read_text reads it back.
std::string to_toml(std::span<const Section> sections);

// Markdown tables of all keys with defaults (the values in the sections) for the user guide.
std::string to_markdown(std::span<const Section> sections);

// As TOML writes it.
std::string to_text(const Value& value);

// "at least 1 and less than 2"
std::string describe(const Rule& rule);

// The candidate nearest to `word` by edit distance, or empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace belay::config
