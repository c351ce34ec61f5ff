#include "belay/train/layout_plan.h"

#include "belay/train/trainer_harness.h"

namespace belay {
namespace {

class LayoutPlanTest : public testing::TrainerHarness {
 protected:
  [[nodiscard]] RunSetup setup(int ranks, std::vector<std::string> overrides = {}) const {
    overrides.emplace_back("train.global_batch=8");
    return set_up_run(config(overrides, ranks));
  }
};

TEST_F(LayoutPlanTest, OneRankHasOneLayout) {
  const std::vector<LayoutPlan> layouts = plan_layouts(setup(1), 1);
  ASSERT_EQ(layouts.size(), 1U);
  const std::string table = layout_table(layouts, 1, 0);
  EXPECT_TRUE(table.starts_with("memory of the run:\nparameters ")) << table;
  EXPECT_NE(table.find(human_bytes(static_cast<double>(layouts[0].total()))), std::string::npos);
  EXPECT_EQ(table.find("parallel.zero"), std::string::npos);
}

TEST_F(LayoutPlanTest, RanksShareMoreAndMore) {
  const std::vector<LayoutPlan> layouts = plan_layouts(setup(4, {"parallel.zero=2"}), 4);
  ASSERT_EQ(layouts.size(), 4U);
  for (const LayoutPlan& layout : layouts) EXPECT_EQ(layout.refused, "") << layout.zero;
  const auto of = [&](std::size_t zero, const char* name) { return layouts[zero].of(name); };
  EXPECT_LT(of(1, "optimizer moments"), of(0, "optimizer moments"));
  EXPECT_LT(of(2, "gradients"), of(1, "gradients"));
  EXPECT_LT(of(3, "parameters"), of(2, "parameters"));
  EXPECT_EQ(of(0, "gathered weights"), 0U);
  EXPECT_GT(of(3, "gathered weights"), 0U);
  const std::string table = layout_table(layouts, 4, 2);
  EXPECT_TRUE(table.starts_with("memory of each of 4 ranks:\nparallel.zero ")) << table;
  EXPECT_NE(table.find(" 1           *2 "), std::string::npos) << table;
  for (const LayoutPlan& layout : layouts) {
    EXPECT_NE(table.find(human_bytes(static_cast<double>(layout.total()))), std::string::npos);
  }
  const auto json = nlohmann::json::parse(layouts_to_json(layouts, 4, 2));
  EXPECT_EQ(json["zero"], 2);
  EXPECT_EQ(json["layouts"][3]["bytes"], layouts[3].total());
  EXPECT_EQ(json["layouts"][3]["memory"]["gradients"], of(3, "gradients"));
}

// What training refuses has no column, but a reason.
TEST_F(LayoutPlanTest, LayoutsThatTrainingRefusesAreNotPrinted) {
  const auto refused = [&](const std::string& setting) {
    const std::vector<LayoutPlan> layouts = plan_layouts(setup(2, {setting}), 2);
    std::string stages;
    for (const LayoutPlan& layout : layouts) {
      if (layout.refused.empty()) continue;
      stages += std::to_string(layout.zero);
      EXPECT_TRUE(layout.memory.empty());
      const std::string table = layout_table(layouts, 2, 0);
      EXPECT_NE(
          table.find(fmt::format("not with parallel.zero = {}: {}", layout.zero, layout.refused)),
          std::string::npos)
          << table;
      const auto json = nlohmann::json::parse(layouts_to_json(layouts, 2, 0));
      EXPECT_EQ(json["layouts"][static_cast<std::size_t>(layout.zero)]["refused"], layout.refused);
    }
    return stages;
  };
  EXPECT_EQ(refused("comm.compression=\"int8\""), "23");
  EXPECT_EQ(refused("comm.pipeline_depth=8"), "1");
  EXPECT_EQ(refused("comm.buckets=4"), "");
}

}  // namespace
}  // namespace belay
