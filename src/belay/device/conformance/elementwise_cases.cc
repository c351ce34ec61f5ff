// Cases of fill, cast, add, dropout and the plain sums.

#include <fmt/core.h>

#include <cmath>

#include "belay/device/conformance/cases.h"

namespace belay::conformance {
namespace {

// Exactly rounded operators are held to their rounding.
constexpr Tolerance kRounded{.f64 = 0, .f32 = 0x1p-24, .bf16 = 0x1p-8, .f16 = 0x1p-11};

struct Length {
  std::int64_t count;
  std::int64_t misalignment;
};
constexpr Length kLengths[] = {{1, 0}, {31, 1}, {64, 0}, {1003, 3}, {70001, 5}};

std::string name_of_case(std::string_view what, const Length& length) {
  return fmt::format("{} {}{}", what, length.count,
                     length.misalignment != 0 ? fmt::format(" from {}", length.misalignment) : "");
}

}  // namespace

std::vector<OpCase<FillArgs>> cases_of(OpTag<FillArgs>) {
  std::vector<OpCase<FillArgs>> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
    for (const double value : {0.0, 3.0}) {
      for (const Length& length : kLengths) {
        cases.push_back({name_of_case(fmt::format("{} {}", name_of(dtype), value), length),
                         [=](CaseMemory& memory) {
                           memory.set_misalignment(length.misalignment);
                           return FillArgs{memory.output("dst", dtype, {length.count}), value};
                         },
                         kRounded});
      }
    }
  }
  return cases;
}

std::vector<OpCase<CastArgs>> cases_of(OpTag<CastArgs>) {
  std::vector<OpCase<CastArgs>> cases;
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      for (const Length& length : kLengths) {
        cases.push_back(
            {name_of_case(fmt::format("{} -> {}", name_of(from), name_of(to)), length),
             [=](CaseMemory& memory) {
               memory.set_misalignment(length.misalignment);
               return CastArgs{
                   memory.input("src", from, {length.count},
                                [](std::int64_t i, double u) {
                                  constexpr double kOdd[] = {0.0, INFINITY, -INFINITY, NAN, 3e38};
                                  return i % 7 == 3 ? kOdd[i % 5] : 2 * u - 1;
                                }),
                   memory.output("dst", to, {length.count})};
             },
             kRounded});
      }
    }
  }
  return cases;
}

std::vector<OpCase<AddArgs>> cases_of(OpTag<AddArgs>) {
  std::vector<OpCase<AddArgs>> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const char* form : {"separate", "in place of a", "in place of b"}) {
      for (const Length& length : kLengths) {
        cases.push_back({name_of_case(fmt::format("{} {}", name_of(dtype), form), length),
                         [=](CaseMemory& memory) {
                           memory.set_misalignment(length.misalignment);
                           const std::string_view where = form;
                           AddArgs args;
                           args.a = memory.input("a", dtype, {length.count}, between(0.5, 1));
                           args.b = memory.input("b", dtype, {length.count}, between(0.5, 1));
                           if (where == "separate") {
                             args.dst = memory.output("dst", dtype, {length.count});
                           } else {
                             args.dst = where == "in place of a" ? args.a : args.b;
                             memory.mark_written(args.dst);
                           }
                           return args;
                         },
                         kRounded});
      }
    }
  }
  return cases;
}

std::vector<OpCase<DropoutArgs>> cases_of(OpTag<DropoutArgs>) {
  struct Case {
    DType dtype;
    float probability;
    std::uint64_t first_element;
    bool in_place;
  };
  std::vector<OpCase<DropoutArgs>> cases;
  for (const Case& c : {Case{DType::f32, 0.1F, 0, false}, Case{DType::f32, 0.5F, 3, true},
                        Case{DType::f32, 0.0F, 1, false}, Case{DType::bf16, 0.3F, 2, false},
                        Case{DType::bf16, 0.9F, (std::uint64_t{1} << 34) - 5, true},
                        Case{DType::f16, 0.3F, 2, false},
                        Case{DType::f16, 0.9F, (std::uint64_t{1} << 34) - 5, true}}) {
    for (const Length& length : kLengths) {
      cases.push_back({name_of_case(fmt::format("{} {} at {}{}", name_of(c.dtype), c.probability,
                                                c.first_element, c.in_place ? " in place" : ""),
                                    length),
                       [=](CaseMemory& memory) {
                         memory.set_misalignment(length.misalignment);
                         DropoutArgs args;
                         args.src = memory.input("src", c.dtype, {length.count}, between(0.5, 1));
                         if (c.in_place) {
                           memory.mark_written(args.src);
                           args.dst = args.src;
                         } else {
                           args.dst = memory.output("dst", c.dtype, {length.count});
                         }
                         args.probability = c.probability;
                         args.key = {0x0123456789abcdefU, 17, 5};
                         args.first_element = c.first_element;
                         return args;
                       }});
    }
  }
  return cases;
}

std::vector<OpCase<ColumnSumArgs>> cases_of(OpTag<ColumnSumArgs>) {
  struct Case {
    DType dtype;
    std::int64_t rows;
    std::int64_t width;
    std::int64_t misalignment;
  };
  std::vector<OpCase<ColumnSumArgs>> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Case& c : {Case{dtype, 1, 1, 0}, Case{dtype, 7, 33, 1}, Case{dtype, 64, 64, 0},
                          Case{dtype, 701, 130, 3}, Case{dtype, 13, 3001, 0}}) {
      cases.push_back(
          {fmt::format("{} {}x{}{}", name_of(dtype), c.rows, c.width,
                       c.misalignment != 0 ? fmt::format(" from {}", c.misalignment) : ""),
           [c](CaseMemory& memory) {
             memory.set_misalignment(c.misalignment);
             return ColumnSumArgs{memory.input("src", c.dtype, {c.rows, c.width}),
                                  memory.inout("dst", DType::f32, {c.width})};
           }});
      if (dtype == DType::f32) continue;
      cases.push_back({fmt::format("{} {}x{} unprotected", name_of(dtype), c.rows, c.width),
                       [c](CaseMemory& memory) {
                         return ColumnSumArgs{memory.input("src", c.dtype, {c.rows, c.width}),
                                              memory.inout("dst", DType::f32, {c.width}),
                                              Inside::stored};
                       },
                       Tolerance{.f32 = dtype == DType::bf16 ? 4e-3 : 5e-4}});
    }
  }
  return cases;
}

std::vector<OpCase<SumArgs>> cases_of(OpTag<SumArgs>) {
  std::vector<OpCase<SumArgs>> cases;
  for (const Length& length : kLengths) {
    // The order of additions is part of the definition, so the bits are too.
    cases.push_back({name_of_case("f32", length),
                     [=](CaseMemory& memory) {
                       memory.set_misalignment(length.misalignment);
                       return SumArgs{memory.input("src", DType::f32, {length.count}),
                                      memory.inout("dst", DType::f64, {1})};
                     },
                     kRounded});
  }
  return cases;
}

}  // namespace belay::conformance
