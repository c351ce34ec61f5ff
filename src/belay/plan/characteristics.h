#pragma once
// What each operator of a step asks of a machine, and how the machine's units would be shared: the
// roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009) over a plan.

#include <string>
#include <string_view>
#include <vector>

#include "belay/plan/plan.h"

namespace belay {

// Kinds of units of an accelerator: matrix products; element-wise work and reductions; gathers and
// fills that compute nothing; chains that no unit makes parallel.
enum class Unit { cube, vector, copy, scalar };
std::string_view name_of(Unit unit);
// Of an operator of device/ops/. Throws Error(failure) for a name that is none.
Unit unit_of(std::string_view op);

struct Roofline {
  double flops_per_s = 0;
  double bytes_per_s = 0;
  [[nodiscard]] double ridge() const { return flops_per_s / bytes_per_s; }  // FLOPs per byte
};

// All calls of one operator and shape within a step.
struct OpCharacter {
  std::string op;
  std::string shape;
  std::int64_t calls = 0;
  double flops = 0;    // of all calls
  double bytes = 0;    // compulsory
  double seconds = 0;  // as the plan has it; 0: not measured
  Unit unit = Unit::vector;
  double share = 0;  // of the step's time

  [[nodiscard]] double intensity() const { return bytes > 0 ? flops / bytes : 0; }
  [[nodiscard]] bool memory_bound(const Roofline& machine) const {
    return intensity() < machine.ridge();
  }
  // What the longer side of the roofline needs.
  [[nodiscard]] double bound_seconds(const Roofline& machine) const;
};

struct UnitShares {
  double cube = 0;
  double vector = 0;
  double scalar = 0;
};

struct Characteristics {
  std::vector<OpCharacter> ops;  // the longest first
  double density = 0;            // arithmetic's part of the roofline time of the whole step
  double memory_intensity = 0;   // memory's part; both can be high, where each binds some operators
  UnitShares units;              // a policy to start from, before anything is measured
};

// Density above 0.8 gives most to the matrix unit, memory intensity above 0.7 most to the vector
// unit, anything else an even hand.
UnitShares share_units(double density, double memory_intensity);

Characteristics characterise(const Plan& plan, const Roofline& machine);

}  // namespace belay
