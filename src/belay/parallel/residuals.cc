#include "belay/parallel/residuals.h"

#include <algorithm>

#include "belay/base/check.h"
#include "belay/base/error.h"

namespace belay {

std::string names_of(const ParameterTable& table, const std::vector<bool>& marked) {
  std::string names;
  for (int index = 0; index < table.size(); ++index) {
    if (!marked[static_cast<std::size_t>(index)]) continue;
    if (!names.empty()) names += ' ';
    names += table[index].name;
  }
  return names.empty() ? "-" : names;
}

std::vector<bool> marked_by_names(const ParameterTable& table, std::string_view names) {
  std::vector<bool> marked(static_cast<std::size_t>(table.size()));
  while (!names.empty() && names != "-") {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const int index = table.find(name);
    if (index < 0) {
      fail(ExitCode::data,
           "the snapshot's state says that '{}' was compressed, which the model does not have; "
           "state.json is damaged",
           name);
    }
    marked[static_cast<std::size_t>(index)] = true;
  }
  return marked;
}

Residuals::Residuals(const ParameterTable& table, std::vector<bool> kept)
    : table_(table), kept_(std::move(kept)), states_(static_cast<std::size_t>(table.size())) {
  BELAY_CHECK(std::ssize(kept_) == table.size());
  std::size_t elements = 0;
  for (int index = 0; index < table.size(); ++index) {
    if (!has(index)) continue;
    states_[static_cast<std::size_t>(index)].offset = elements;
    elements += static_cast<std::size_t>(table[index].elements());
  }
  for (std::vector<float>& copy : copies_) copy.resize(elements);
}

std::size_t Residuals::bytes(std::int64_t elements) {
  return 2 * static_cast<std::size_t>(elements) * sizeof(float);
}

Residuals::Place Residuals::place(int parameter, std::int64_t begin, std::int64_t count) {
  State& state = states_[static_cast<std::size_t>(parameter)];
  const bool first = state.placed < table_[parameter].elements();
  state.placed += count;
  const std::size_t next = 1 - state.current;
  Place place;
  place.before = memory(state, first ? state.current : next) + begin;
  place.factor = first ? static_cast<float>(unit_ / state.unit) : 1.0F;
  place.after = memory(state, next) + begin;
  return place;
}

void Residuals::keep() {
  for (State& state : states_) {
    if (state.placed == 0) continue;
    state.current = 1 - state.current;
    state.unit = unit_;
    state.placed = 0;
  }
}

void Residuals::discard() {
  for (State& state : states_) state.placed = 0;
}

double Residuals::unit() const {
  for (int index = 0; index < table_.size(); ++index) {
    if (has(index)) return states_[static_cast<std::size_t>(index)].unit;
  }
  return 1;
}

void Residuals::read(int parameter, double unit, std::span<float> dst) const {
  const State& state = states_[static_cast<std::size_t>(parameter)];
  BELAY_CHECK(has(parameter) && std::ssize(dst) == table_[parameter].elements());
  const auto factor = static_cast<float>(unit / state.unit);
  const float* src = copies_[state.current].data() + state.offset;
  std::transform(src, src + dst.size(), dst.begin(), [=](float value) { return value * factor; });
}

void Residuals::write(int parameter, double unit, std::span<const float> src) {
  State& state = states_[static_cast<std::size_t>(parameter)];
  BELAY_CHECK(has(parameter) && std::ssize(src) == table_[parameter].elements());
  state.unit = unit;
  std::copy(src.begin(), src.end(), memory(state, state.current));
}

void Residuals::add(int parameter, double unit, std::span<const float> src) {
  State& state = states_[static_cast<std::size_t>(parameter)];
  BELAY_CHECK(has(parameter) && std::ssize(src) == table_[parameter].elements());
  const auto factor = static_cast<float>(state.unit / unit);
  float* dst = memory(state, state.current);
  std::transform(src.begin(), src.end(), dst, dst,
                 [=](float value, float sum) { return sum + value * factor; });
}

}  // namespace belay
