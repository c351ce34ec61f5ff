// Writing configurations: the effective TOML and the documentation tables.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "belay/base/config.h"

namespace belay::config {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// The shortest text that reads back as the same double, and as a float rather than an integer.
std::string real(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

struct Writer {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return real(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const std::vector<double>& values) const {
    std::vector<std::string> texts;
    for (const double value : values) texts.push_back(real(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
};

std::string value_text(const Section& section, const Field& field) {
  return to_text(field.read(section.object, field));
}

std::string doc_text(const Field& field) {
  std::string doc(field.doc);
  if (field.kind == Kind::choice) doc += fmt::format(" ({})", fmt::join(field.rule.choices, " | "));
  return doc;
}

std::string kind_text(const Field& field) {
  switch (field.kind) {
    case Kind::boolean:
      return "boolean";
    case Kind::integer:
      return "integer";
    case Kind::real:
      return "number";
    case Kind::text:
      return "string";
    case Kind::choice:
      return "choice";
    case Kind::reals:
      return fmt::format("{} numbers", field.length);
  }
  return "";
}

}  // namespace

std::string to_text(const Value& value) {
  return std::visit(Writer{}, value);
}

std::string describe(const Rule& rule) {
  std::string text;
  if (std::isfinite(rule.low)) {
    text = fmt::format("{} {}", rule.open_low ? "greater than" : "at least", rule.low);
  }
  if (std::isfinite(rule.high)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ",
                        rule.open_high ? "less than" : "at most", rule.high);
  }
  return text.empty() ? "finite" : text;
}

std::string to_toml(std::span<const Section> sections) {
  std::string text;
  std::string_view open;
  for (const Section& section : sections) {
    if (section.name != open) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
      open = section.name;
    }
    std::vector<std::string> lines;
    std::size_t width = 0;
    for (const Field& field : section.fields) {
      const std::string value = value_text(section, field);
      lines.push_back(value.empty() ? fmt::format("# {} =", field.name)
                                    : fmt::format("{} = {}", field.name, value));
      width = std::max(width, lines.back().size());
    }
    for (std::size_t index = 0; index < lines.size(); ++index) {
      text += fmt::format("{:<{}}  # {}\n", lines[index], width, doc_text(section.fields[index]));
    }
  }
  return text;
}

std::string to_markdown(std::span<const Section> sections) {
  std::string text;
  std::string_view open;
  for (const Section& section : sections) {
    if (section.name != open) {
      text += fmt::format("{}### `[{}]`\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                          text.empty() ? "" : "\n", section.name);
      open = section.name;
    }
    for (const Field& field : section.fields) {
      const std::string value = value_text(section, field);
      std::string doc(field.doc);
      if (field.kind == Kind::choice) {
        doc += fmt::format("; one of `{}`", fmt::join(field.rule.choices, "`, `"));
      } else if (field.kind != Kind::text && field.kind != Kind::boolean &&
                 describe(field.rule) != "finite") {
        doc += "; " + describe(field.rule);
      }
      text += fmt::format("| `{}` | {} | {} | {} |\n", field.name, kind_text(field),
                          value.empty() ? "derived" : "`" + value + "`", doc);
    }
  }
  return text;
}

}  // namespace belay::config
