#include "belay/plan/characteristics.h"

#include <algorithm>
#include <array>
#include <utility>

#include "belay/base/error.h"
#include "belay/device/ops/all.h"

namespace belay {
namespace {

constexpr std::array<std::string_view, 4> kUnitNames = {"cube", "vector", "copy", "scalar"};

constexpr std::pair<std::string_view, Unit> kUnits[] = {
    {MatmulArgs::kName, Unit::cube},
    {AttentionForwardArgs::kName, Unit::cube},
    {AttentionBackwardArgs::kName, Unit::cube},
    {EmbeddingForwardArgs::kName, Unit::copy},
    {EmbeddingBackwardArgs::kName, Unit::vector},
    {NormForwardArgs::kName, Unit::vector},
    {NormBackwardArgs::kName, Unit::vector},
    {RotaryArgs::kName, Unit::vector},
    {ScatterRowsArgs::kName, Unit::copy},
    {ActivationForwardArgs::kName, Unit::vector},
    {ActivationBackwardArgs::kName, Unit::vector},
    {CrossEntropyArgs::kName, Unit::vector},
    {AdamwArgs::kName, Unit::vector},
    {SumOfSquaresArgs::kName, Unit::vector},
    {FillArgs::kName, Unit::copy},
    {CastArgs::kName, Unit::vector},
    {AddArgs::kName, Unit::vector},
    {DropoutArgs::kName, Unit::vector},
    {ColumnSumArgs::kName, Unit::vector},
    {SumArgs::kName, Unit::scalar},
};

}  // namespace

std::string_view name_of(Unit unit) {
  return kUnitNames.at(static_cast<std::size_t>(unit));
}

Unit unit_of(std::string_view op) {
  for (const auto& [name, unit] : kUnits) {
    if (name == op) return unit;
  }
  fail(ExitCode::failure, "operator {} has no unit", op);
}

double OpCharacter::bound_seconds(const Roofline& machine) const {
  return std::max(flops / machine.flops_per_s, bytes / machine.bytes_per_s);
}

UnitShares share_units(double density, double memory_intensity) {
  if (density > 0.8) return {0.6, 0.1, 0.3};
  if (memory_intensity > 0.7) return {0.3, 0.5, 0.2};
  return {0.4, 0.2, 0.4};
}

Characteristics characterise(const Plan& plan, const Roofline& machine) {
  Characteristics result;
  for (const PlannedOp& op : plan.ops) {
    auto found = std::find_if(result.ops.begin(), result.ops.end(), [&](const OpCharacter& known) {
      return known.op == op.op && known.shape == op.shape;
    });
    if (found == result.ops.end()) {
      OpCharacter fresh;
      fresh.op = op.op;
      fresh.shape = op.shape;
      fresh.unit = unit_of(op.op);
      found = result.ops.insert(found, fresh);
    }
    const auto calls = static_cast<double>(op.calls);
    found->calls += op.calls;
    found->flops += calls * op.flops;
    found->bytes += calls * op.bytes;
    found->seconds += calls * op.seconds;
  }
  double step = 0;
  double bound = 0;
  double arithmetic = 0;
  double memory = 0;
  for (const OpCharacter& op : result.ops) {
    step += op.seconds;
    bound += op.bound_seconds(machine);
    arithmetic += op.flops / machine.flops_per_s;
    memory += op.bytes / machine.bytes_per_s;
  }
  for (OpCharacter& op : result.ops) op.share = step > 0 ? op.seconds / step : 0;
  if (bound > 0) {
    result.density = arithmetic / bound;
    result.memory_intensity = memory / bound;
  }
  result.units = share_units(result.density, result.memory_intensity);
  std::stable_sort(result.ops.begin(), result.ops.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace belay
