#pragma once
// For tests: runs one kernel of the host processor by name, under each instruction set.

#include <gtest/gtest.h>

#include <hwy/targets.h>
#include <string>
#include <string_view>
#include <vector>

#include "belay/device/cpu/kernels.h"

namespace belay::attention {

template <class Args>
const Candidate<Args>& candidate_named(std::string_view name) {
  for (const auto& candidate : cpu_candidates(OpTag<Args>{})) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no candidate " << name;
  return cpu_candidates(OpTag<Args>{}).back();
}

// Runs a candidate in a workspace of exactly the size it asked for and checks what lies behind it.
template <class Args>
void run_candidate(const Candidate<Args>& candidate, const Args& args) {
  args.check();
  const std::size_t bytes = candidate.workspace == nullptr ? 0 : candidate.workspace(args);
  constexpr std::size_t kGuard = 256;
  std::vector<std::uint8_t> memory(bytes + 2 * kGuard, 0x5a);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t begin = (128 - address % 128) % 128;
  KernelContext context{reinterpret_cast<std::byte*>(memory.data() + begin), bytes};
  candidate.run(args, context);
  for (std::size_t i = begin + bytes; i < memory.size(); ++i) {
    ASSERT_EQ(memory[i], 0x5a) << "wrote behind the workspace";
  }
}

template <class Args>
void run_accepted(std::string_view name, const Args& args) {
  const auto& candidate = candidate_named<Args>(name);
  ASSERT_TRUE(candidate.declines == nullptr || candidate.declines(args) == nullptr);
  run_candidate(candidate, args);
}

// The instruction sets to force: those of this processor that have kernels.
inline std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> list = {HWY_STATIC_TARGET};
  for (const std::int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) != 0) list.push_back(target);
  }
  return list;
}

class ForEachTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam() | HWY_STATIC_TARGET);
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

// The tuned kernels that take both calls of a problem, by name.
inline std::vector<std::string_view> kernels_for(const AttentionForwardArgs& args) {
  std::vector<std::string_view> names;
  for (const auto& candidate : cpu_candidates(OpTag<AttentionForwardArgs>{})) {
    if (candidate.declines != nullptr && candidate.declines(args) == nullptr) {
      names.push_back(candidate.name);
    }
  }
  return names;
}

inline std::string target_name(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

}  // namespace belay::attention
