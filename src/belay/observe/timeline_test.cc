#include "belay/observe/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "belay/base/file.h"

namespace belay {
namespace {

using Json = nlohmann::json;

TEST(TimelineTest, TheTraceIsValidAndComplete) {
  Timeline timeline(8, 8);
  timeline.name_lane(0, 1, "compute \"a\"\n");
  timeline.record(Span{.name = "matmul \"x\\y\"",
                       .rank = 0,
                       .lane = 1,
                       .begin_ns = 1500,
                       .end_ns = 4001,
                       .flops = 2e9,
                       .bytes = 128});
  timeline.record(Span{.name = "odd", .flops = std::nan("")});
  timeline.record(CounterSample{.name = "queue", .at_ns = 2000, .value = 3});

  const Json trace = Json::parse(to_chrome_trace(timeline));
  const Json& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0]["args"]["name"], "rank 0");
  EXPECT_EQ(events[1]["name"], "thread_name");
  EXPECT_EQ(events[1]["args"]["name"], "compute \"a\"\n");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "matmul \"x\\y\"");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_DOUBLE_EQ(events[2]["ts"], 1.5);
  EXPECT_DOUBLE_EQ(events[2]["dur"], 2.501);
  EXPECT_EQ(events[2]["args"]["flops"], 2e9);
  EXPECT_TRUE(events[3]["args"]["flops"].is_null());
  EXPECT_EQ(events[4]["ph"], "C");
  EXPECT_EQ(events[4]["args"]["value"], 3.0);
}

TEST(TimelineTest, AnEmptyOneIsValidToo) {
  EXPECT_EQ(Json::parse(to_chrome_trace(Timeline(1, 1)))["traceEvents"].size(), 0U);
}

TEST(TimelineTest, WhatDoesNotFitIsCounted) {
  Timeline timeline(2, 1);
  for (int i = 0; i < 5; ++i) timeline.record(Span{.name = "s"});
  EXPECT_EQ(timeline.spans().size(), 2U);
  EXPECT_EQ(timeline.dropped(), 3);
  EXPECT_EQ(Json::parse(to_chrome_trace(timeline))["otherData"]["dropped"], 3);
  timeline.clear();
  EXPECT_EQ(timeline.spans().size(), 0U);
  EXPECT_EQ(timeline.dropped(), 0);
}

TEST(TimelineTest, ManyThreadsRecordAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 1000;
  Timeline timeline(kThreads * kSpans, 1);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kThreads; ++lane) {
    threads.emplace_back([&timeline, lane] {
      for (int i = 0; i < kSpans; ++i) SpanScope scope(&timeline, lane, "work", 1.0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::array<int, kThreads> per_lane{};
  for (const Span& span : timeline.spans()) {
    ++per_lane[static_cast<std::size_t>(span.lane)];
    EXPECT_LE(span.begin_ns, span.end_ns);
  }
  for (const int count : per_lane) EXPECT_EQ(count, kSpans);
}

TEST(TimelineTest, TotalsAddUpByNameLongestFirst) {
  Timeline timeline(8, 1);
  timeline.record(Span{.name = "b", .begin_ns = 0, .end_ns = 1000000, .flops = 1});
  timeline.record(Span{.name = "a", .begin_ns = 0, .end_ns = 2000000, .flops = 2, .bytes = 5});
  timeline.record(Span{.name = "a", .begin_ns = 0, .end_ns = 2000000, .flops = 2, .bytes = 5});
  const auto all = totals(timeline);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[0].count, 2);
  EXPECT_DOUBLE_EQ(all[0].ms, 4.0);
  EXPECT_DOUBLE_EQ(all[0].flops, 4.0);
  EXPECT_DOUBLE_EQ(all[0].bytes, 10.0);
}

TEST(TimelineTest, KeptNamesAreSharedAndStay) {
  Timeline timeline(1, 1);
  std::string name = "layer.0";
  const std::string_view kept = timeline.keep(name);
  name = "changed";
  for (int i = 0; i < 100; ++i) timeline.keep("layer." + std::to_string(i));
  EXPECT_EQ(kept, "layer.0");
  EXPECT_EQ(timeline.keep("layer.0").data(), kept.data());
}

TEST(TimelineTest, TheFileHoldsTheTrace) {
  Timeline timeline(1, 1);
  timeline.record(Span{.name = "s", .end_ns = 5});
  const std::string path = ::testing::TempDir() + "belay_timeline_test.json";
  write_chrome_trace(timeline, path);
  EXPECT_EQ(read_file(path), to_chrome_trace(timeline));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace belay
