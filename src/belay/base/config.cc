#include "belay/base/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "belay/base/error.h"

namespace belay::config {
namespace {

// Where a value came from, for messages: "run.toml:12" or "--set train.steps=x".
std::string place(std::string_view source, const toml::source_region& region) {
  return region.begin.line > 0 ? fmt::format("{}:{}", source, region.begin.line)
                               : std::string(source);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row.back();
}

std::string joined(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string expectation(const Field& field) {
  switch (field.kind) {
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "an integer";
    case Kind::real:
      return "a number";
    case Kind::text:
      return "a string in quotes";
    case Kind::choice:
      return fmt::format("one of \"{}\"", fmt::join(field.rule.choices, "\", \""));
    case Kind::reals:
      return fmt::format("an array of {} numbers", field.length);
  }
  return "";
}

std::string shown(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  std::string result = text.str();
  constexpr std::size_t kLongest = 80;
  if (result.size() > kLongest) result = result.substr(0, kLongest) + "...";
  return result;
}

bool within(const Rule& rule, double value) {
  if (!std::isfinite(value)) return false;
  if (rule.open_low ? value <= rule.low : value < rule.low) return false;
  return !(rule.open_high ? value >= rule.high : value > rule.high);
}

// The value as `field` wants it, or nothing if the type does not fit.
std::optional<Value> converted(const Field& field, const toml::node& node) {
  switch (field.kind) {
    case Kind::boolean:
      if (const auto value = node.value_exact<bool>()) return *value;
      return std::nullopt;
    case Kind::integer:
      if (const auto value = node.value_exact<std::int64_t>()) return *value;
      return std::nullopt;
    case Kind::real:
      if (const auto value = node.value_exact<std::int64_t>()) return static_cast<double>(*value);
      if (const auto value = node.value_exact<double>()) return *value;
      return std::nullopt;
    case Kind::text:
    case Kind::choice:
      if (auto value = node.value_exact<std::string>()) return std::move(*value);
      return std::nullopt;
    case Kind::reals: {
      const toml::array* const array = node.as_array();
      if (array == nullptr || array->size() != field.length) return std::nullopt;
      std::vector<double> values;
      for (const toml::node& element : *array) {
        if (const auto integer = element.value_exact<std::int64_t>()) {
          values.push_back(static_cast<double>(*integer));
        } else if (const auto real = element.value_exact<double>()) {
          values.push_back(*real);
        } else {
          return std::nullopt;
        }
      }
      return values;
    }
  }
  return std::nullopt;
}

bool satisfies(const Field& field, const Value& value) {
  switch (field.kind) {
    case Kind::integer:
      return within(field.rule, static_cast<double>(std::get<std::int64_t>(value)));
    case Kind::real:
      return within(field.rule, std::get<double>(value));
    case Kind::choice:
      return std::find(field.rule.choices.begin(), field.rule.choices.end(),
                       std::get<std::string>(value)) != field.rule.choices.end();
    case Kind::reals: {
      const auto& values = std::get<std::vector<double>>(value);
      return std::all_of(values.begin(), values.end(),
                         [&](double element) { return within(field.rule, element); });
    }
    case Kind::boolean:
    case Kind::text:
      return true;
  }
  return true;
}

void assign(const Section& section, const Field& field, const toml::node& node,
            const std::string& where) {
  const std::optional<Value> value = converted(field, node);
  if (!value) {
    fail(ExitCode::usage, "{}: {}.{} = {}: expected {}", where, section.name, field.name,
         shown(node), expectation(field));
  }
  if (satisfies(field, *value)) return field.write(section.object, field, *value);
  if (field.kind == Kind::choice) {
    const auto& word = std::get<std::string>(*value);
    const std::string_view guess = nearest(word, field.rule.choices);
    fail(ExitCode::usage, "{}: {}.{} = \"{}\": expected {}{}", where, section.name, field.name,
         word, expectation(field),
         guess.empty() ? "" : fmt::format("; did you mean \"{}\"?", guess));
  }
  fail(ExitCode::usage, "{}: {}.{} = {}: must be {}", where, section.name, field.name, shown(node),
       describe(field.rule));
}

struct Target {
  const Section* section = nullptr;
  const Field* field = nullptr;
};

[[noreturn]] void unknown_section(std::span<const Section> sections, std::string_view name,
                                  const std::string& where) {
  std::vector<std::string_view> names;
  for (const Section& section : sections) {
    if (names.empty() || names.back() != section.name) names.push_back(section.name);
  }
  const std::string_view guess = nearest(name, names);
  fail(ExitCode::usage, "{}: unknown section [{}]; {}", where, name,
       guess.empty() ? "valid sections: " + joined(names)
                     : fmt::format("did you mean [{}]?", guess));
}

[[noreturn]] void unknown_key(std::span<const Section> sections, std::string_view section_name,
                              std::string_view key, const std::string& where) {
  std::vector<std::string_view> names;
  for (const Section& section : sections) {
    for (const Field& field : section.fields) {
      if (section.name == section_name) {
        names.push_back(field.name);
      } else if (field.name == key) {
        fail(ExitCode::usage, "{}: unknown key \"{}\" in [{}]; it belongs in [{}]", where, key,
             section_name, section.name);
      }
    }
  }
  if (names.empty()) unknown_section(sections, section_name, where);
  const std::string_view guess = nearest(key, names);
  fail(ExitCode::usage, "{}: unknown key \"{}\" in [{}]; {}", where, key, section_name,
       guess.empty() ? "valid keys: " + joined(names) : fmt::format("did you mean \"{}\"?", guess));
}

Target find(std::span<const Section> sections, std::string_view section_name, std::string_view key,
            const std::string& where) {
  for (const Section& section : sections) {
    if (section.name != section_name) continue;
    for (const Field& field : section.fields) {
      if (field.name == key) return {&section, &field};
    }
  }
  unknown_key(sections, section_name, key, where);
}

void read_table(const toml::table& table, std::string_view source,
                std::span<const Section> sections) {
  for (const auto& [section_key, section_node] : table) {
    const std::string where = place(source, section_key.source());
    const std::string_view name = section_key.str();
    const toml::table* const entries = section_node.as_table();
    if (entries == nullptr) {
      fail(ExitCode::usage,
           "{}: \"{}\" stands outside of a section; put it under a line such as [{}]", where, name,
           sections.front().name);
    }
    if (std::none_of(sections.begin(), sections.end(),
                     [&](const Section& section) { return section.name == name; })) {
      unknown_section(sections, name, where);
    }
    for (const auto& [key, node] : *entries) {
      const std::string here = place(source, key.source());
      const Target target = find(sections, name, key.str(), here);
      assign(*target.section, *target.field, node, here);
    }
  }
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  // Beyond a third of the word (and at least two edits) a guess would only mislead.
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

void read_text(std::string_view text, std::string_view source, std::span<const Section> sections) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ExitCode::usage, "{}: not valid TOML: {}", place(source, error.source()),
         error.description());
  }
  read_table(table, source, sections);
}

void apply_override(std::string_view assignment, std::span<const Section> sections) {
  const std::string source = fmt::format("--set {}", assignment);
  const std::size_t equals = assignment.find('=');
  const std::size_t dot = assignment.find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos || dot > equals) {
    fail(ExitCode::usage, "{}: expected section.key=value, as in --set train.steps=100", source);
  }
  const std::string_view section_name = assignment.substr(0, dot);
  const std::string_view key = assignment.substr(dot + 1, equals - dot - 1);
  const std::string_view text = assignment.substr(equals + 1);

  const auto [section, field] = find(sections, section_name, key, source);
  toml::table table;
  bool parsed = true;
  try {
    table = toml::parse(fmt::format("value = {}", text));
  } catch (const toml::parse_error&) {
    parsed = false;
  }
  const bool wants_text = field->kind == Kind::text || field->kind == Kind::choice;
  if (parsed && table.size() == 1 && (!wants_text || table["value"].is_string())) {
    return assign(*section, *field, *table["value"].node(), source);
  }
  // A shell strips quotes: a bare word is a string.
  assign(*section, *field, toml::value<std::string>(std::string(text)), source);
}

}  // namespace belay::config
