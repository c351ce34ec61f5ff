#pragma once
// What compression has not sent yet, element by element of the parameters, so that it means the
// same however gradients are cut into buckets. Residuals are of gradients as they are summed up:
// over tokens, and multiplied by the step's loss multiplier, which is their unit.
//
// A step that is skipped must leave them as they were, and that is known only at its end: each
// parameter has two copies, one that the step reads and one that it writes.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/model/parameter_table.h"

namespace belay {

// Names of the parameters marked, with spaces between them; "-" if there are none.
std::string names_of(const ParameterTable& table, const std::vector<bool>& marked);
// Error(data) for a name that the table lacks.
std::vector<bool> marked_by_names(const ParameterTable& table, std::string_view names);

class Residuals {
 public:
  // Zeros for the parameters that are `kept` (one entry each). `table` must outlive this.
  Residuals(const ParameterTable& table, std::vector<bool> kept);
  // For `elements` in the parameters kept.
  static std::size_t bytes(std::int64_t elements);

  [[nodiscard]] const ParameterTable& table() const { return table_; }
  [[nodiscard]] bool has(int parameter) const { return kept_[static_cast<std::size_t>(parameter)]; }

  // Of the step that follows: a power of two.
  void begin_step(double unit) { unit_ = unit; }
  struct Place {
    const float* before = nullptr;  // times `factor`, what is still to be sent
    float factor = 1;
    float* after = nullptr;  // takes what is then left
  };
  // For some elements. A pass over a parameter takes each of its elements once, in pieces of any
  // order; a step may have several passes, each of which goes on from the one before.
  Place place(int parameter, std::int64_t begin, std::int64_t count);
  // The step counts, or never was.
  void keep();
  void discard();

  // Of the last step that counted.
  [[nodiscard]] double unit() const;
  // Between steps, in the unit given.
  void read(int parameter, double unit, std::span<float> dst) const;
  void write(int parameter, double unit, std::span<const float> src);
  // Adds instead; the unit stays that of what is there.
  void add(int parameter, double unit, std::span<const float> src);

 private:
  struct State {
    std::size_t offset = 0;
    std::size_t current = 0;  // which copy counts
    std::int64_t placed = 0;  // elements of this step so far
    double unit = 1;          // of the copy that counts
  };
  [[nodiscard]] float* memory(const State& state, std::size_t copy) {
    return copies_[copy].data() + state.offset;
  }

  const ParameterTable& table_;
  std::vector<bool> kept_;
  std::vector<State> states_;
  std::array<std::vector<float>, 2> copies_;
  double unit_ = 1;
};

}  // namespace belay
