#include "belay/device/conformance/conformance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <type_traits>

#include "belay/device/conformance/cases.h"
#include "belay/device/reference/element.h"

namespace belay::conformance {
namespace {

// BELAY_CASE=operator/case runs that case alone.
bool wanted(std::string_view op, const std::string& name) {
  static const char* only = std::getenv("BELAY_CASE");
  return only == nullptr || std::string(op) + "/" + name == only;
}

template <class... Args>
::testing::Types<Args...> types_of(OpList<Args...>);

struct OpNames {
  template <class Args>
  static std::string GetName(int) {
    return std::string(Args::kName);
  }
};

template <class Args>
class OpConformance : public ::testing::Test {
 public:
  // Returns how many kernels ran.
  static int run_on(std::string_view device_name) {
    const auto cases = cases_of(OpTag<Args>{});
    EXPECT_FALSE(cases.empty());
    std::set<std::string> names;
    const auto device = make_device(device_name);
    int took = 0;
    for (const auto& op_case : cases) {
      EXPECT_TRUE(names.insert(op_case.name).second) << "two cases named " << op_case.name;
      if (!wanted(Args::kName, op_case.name)) continue;
      const int before = took;
      for (const std::string& failure : check_case(*device, op_case, took)) {
        ADD_FAILURE() << failure;
      }
      EXPECT_GT(took, before) << "no kernel took " << op_case.name;
    }
    return took;
  }
};

using AllOpTypes = decltype(types_of(AllOps{}));
TYPED_TEST_SUITE(OpConformance, AllOpTypes, OpNames);

TYPED_TEST(OpConformance, Cpu) {
  OpConformance<TypeParam>::run_on("cpu");
}
TYPED_TEST(OpConformance, Reference) {
  OpConformance<TypeParam>::run_on("reference");
}
TYPED_TEST(OpConformance, Guard) {
  OpConformance<TypeParam>::run_on("guard");
}

TEST(GradientConformance, DerivedGradientsAgreeWithDifferences) {
  for (const auto& family :
       {matmul_gradients(), embedding_gradients(), norm_gradients(), attention_gradients(),
        activation_gradients(), cross_entropy_gradients()}) {
    EXPECT_FALSE(family.empty());
    for (const GradientCase& gradient_case : family) {
      if (!wanted(gradient_case.op, gradient_case.name)) continue;
      for (const std::string& failure : check_gradient(gradient_case)) ADD_FAILURE() << failure;
    }
  }
}

// A kernel with each fault that the harness promises to find, and one without.
enum class Fault { none, wrong_value, past_the_end, changes_input, depends_on_run, not_written };

struct FaultyRun {
  int calls = 0;
  void operator()(const AddArgs& args, Fault fault) {
    ++calls;
    KernelContext none;
    if (fault != Fault::not_written) run_reference(args, none);
    auto* dst = args.dst.as<float>();
    if (fault == Fault::wrong_value) dst[3] += 1e-3F;
    if (fault == Fault::past_the_end) dst[args.dst.elements()] = 1.0F;
    if (fault == Fault::changes_input) args.a.as<float>()[0] += 1.0F;
    if (fault == Fault::depends_on_run && calls == 3) dst[0] = std::nextafter(dst[0], 2.0F);
  }
};

std::vector<std::string> check_faulty(Fault fault) {
  const auto build = [](CaseMemory& memory) {
    return AddArgs{memory.input("a", DType::f32, {10}, between(1, 2)),
                   memory.input("b", DType::f32, {10}, between(1, 2)),
                   memory.output("dst", DType::f32, {10})};
  };
  CaseMemory layout(CaseMemory::Mode::addresses, nullptr, 0);
  build(layout);
  std::vector<std::byte> start(layout.used(), std::byte{0xA5});
  CaseMemory host(CaseMemory::Mode::host, start.data(), start.size());
  build(host);
  CaseMemory exact(CaseMemory::Mode::exact, nullptr, 0);
  KernelContext none;
  run_reference(build(exact), none);
  FaultyRun faulty;
  return check_image(
      exact, host, start,
      [&](std::vector<std::byte>& image) {
        CaseMemory here(CaseMemory::Mode::addresses, image.data(), image.size());
        faulty(build(here), fault);
      },
      Tolerance{});
}

TEST(HarnessConformance, FindsEachFault) {
  EXPECT_TRUE(check_faulty(Fault::none).empty());
  for (const Fault fault : {Fault::wrong_value, Fault::past_the_end, Fault::changes_input,
                            Fault::depends_on_run, Fault::not_written}) {
    EXPECT_FALSE(check_faulty(fault).empty()) << "fault " << static_cast<int>(fault);
  }
}

TEST(HarnessConformance, FindsAWrongGradient) {
  const GradientCase wrong{"square", "wrong by a factor", [](CaseMemory& memory) {
                             const Tensor x = memory.input("x", DType::f32, {4});
                             const Tensor d_x = memory.output("d_x", DType::f32, {4});
                             return Gradient{[=] { return dot(x, x); },
                                             [=] {
                                               for (std::int64_t i = 0; i < 4; ++i) {
                                                 store(d_x, i, load(x, i));
                                               }
                                             },
                                             {{x, d_x}}};
                           }};
  EXPECT_FALSE(check_gradient(wrong).empty());
}

}  // namespace
}  // namespace belay::conformance
