#include "belay/comm/simulator.h"

#include <gtest/gtest.h>

#include <chrono>

#include "belay/comm/algorithm.h"
#include "belay/comm/simulated_cluster.h"

namespace belay::comm {
namespace {

constexpr double kAlpha = 2e-6;
constexpr double kBeta = 1e-10;
constexpr double kGamma = 3e-11;

MachineModel network() {
  MachineModel model;
  model.inner = {Curve::line(kAlpha, kBeta), Curve::line(kAlpha, kBeta + kGamma)};
  model.outer = model.inner;
  model.rank_moves_data = false;
  return model;
}

SimulatedTime time_of(Algorithm algorithm, int ranks, std::int64_t count, const MachineModel& model,
                      int segments = 1) {
  ScheduleKey key{.algorithm = algorithm};
  key.ranks = ranks;
  key.count = count;
  key.segments = segments;
  Layout layout;
  layout.domain_of = model.domain_of;
  return simulate(make_schedule(key, layout), model, 4, 4);
}

TEST(Simulator, AgreesWithTheFormulas) {
  constexpr std::int64_t kCount = 1 << 20;
  const double n = 4.0 * kCount;
  for (const int p : {2, 4, 8, 16}) {
    const double share = (p - 1.0) / p;
    const double steps = log2_floor(p);
    const auto expect = [&](Algorithm algorithm, double alphas, double bytes, double reduced) {
      const SimulatedTime time = time_of(algorithm, p, kCount, network());
      EXPECT_TRUE(time.complete);
      const double formula = alphas * kAlpha + bytes * kBeta + reduced * kGamma;
      EXPECT_NEAR(time.seconds / formula, 1, 1e-3) << name_of(algorithm) << " p=" << p;
    };
    expect(Algorithm::ring, 2 * (p - 1), 2 * share * n, share * n);
    expect(Algorithm::halving_doubling, 2 * steps, 2 * share * n, share * n);
    if (p > 2) expect(Algorithm::recursive_doubling, steps, steps * n, steps * n);
  }
}

TEST(Simulator, AFullMeshUsesAllItsLinksAtOnce) {
  MachineModel mesh = network();
  mesh.full_mesh = true;
  constexpr int kRanks = 8;
  constexpr std::int64_t kCount = 1 << 20;
  const double n = 4.0 * kCount;
  const SimulatedTime direct = time_of(Algorithm::direct, kRanks, kCount, mesh);
  const double formula = 2 * kAlpha + 2 * n / kRanks * kBeta + n / kRanks * kGamma;
  EXPECT_NEAR(direct.seconds / formula, 1, 1e-2);
  EXPECT_GT(time_of(Algorithm::direct, kRanks, kCount, network()).seconds, 3 * direct.seconds);
}

TEST(Simulator, RanksThatMoveDataDoOneThingAtATime) {
  MachineModel host = network();
  host.rank_moves_data = true;
  constexpr std::int64_t kCount = 1 << 20;
  const double block = 4.0 * kCount / 4;
  host.extra_part_s_per_byte = kBeta;
  const SimulatedTime direct = time_of(Algorithm::direct, 4, kCount, host);
  // One combine of four contributions, then three blocks one after the other.
  const double formula =
      kAlpha + block * (kBeta + kGamma) + 2 * block * kBeta + 3 * (kAlpha + block * kBeta);
  EXPECT_NEAR(direct.seconds / formula, 1, 1e-3);
}

TEST(Simulator, HierarchiesSpareSlowLinks) {
  MachineModel model = network();
  for (int rank = 0; rank < 32; ++rank) model.domain_of.push_back(rank / 8);
  model.outer = {Curve::line(2e-5, 8e-10), Curve::line(2e-5, 8e-10 + kGamma)};
  model.domain_link_s_per_byte = 8e-10;
  constexpr std::int64_t kCount = 1 << 20;
  const double n = 4.0 * kCount;
  const SimulatedTime flat = time_of(Algorithm::ring, 32, kCount, model);
  const SimulatedTime two_level = time_of(Algorithm::hierarchical, 32, kCount, model);
  // Contiguous domains: as many bytes cross with a flat ring, but it pays the latency 62 times.
  EXPECT_NEAR(flat.crossing_bytes / (4 * 2 * 31.0 / 32 * n), 1, 1e-2);
  EXPECT_NEAR(two_level.crossing_bytes / (4 * 2 * 3.0 / 4 * n), 1, 1e-2);
  EXPECT_LT(two_level.seconds, flat.seconds);
  // Ranks dealt out to domains make every edge of the ring cross.
  MachineModel dealt = model;
  for (std::size_t rank = 0; rank < 32; ++rank) dealt.domain_of[rank] = static_cast<int>(rank % 4);
  EXPECT_NEAR(time_of(Algorithm::ring, 32, kCount, dealt).crossing_bytes / flat.crossing_bytes, 8,
              1e-2);
}

TEST(Simulator, SegmentsOverlap) {
  constexpr std::int64_t kCount = 1 << 22;
  const double one = time_of(Algorithm::double_tree, 16, kCount, network(), 1).seconds;
  const double many = time_of(Algorithm::double_tree, 16, kCount, network(), 32).seconds;
  EXPECT_LT(many, 0.5 * one);
}

TEST(Simulator, EveryScheduleEnds) {
  MachineModel model = network();
  for (int rank = 0; rank < 13; ++rank) model.domain_of.push_back(rank / 5);
  for (const bool moves : {false, true}) {
    model.rank_moves_data = moves;
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      for (const Algorithm algorithm : algorithms_of(collective)) {
        for (const std::int64_t posts : {0, 1000}) {
          ScheduleKey key{.collective = collective, .algorithm = algorithm};
          key.ranks = 13;
          key.count = collective == Collective::barrier ? 0 : 130;
          key.segments = 3;
          key.post_elements = posts;
          Layout layout;
          layout.domain_of = model.domain_of;
          const Schedule schedule = make_schedule(key, layout);
          const SimulatedTime time = simulate(schedule, model, 4, 4);
          EXPECT_TRUE(time.complete) << name_of(collective) << " " << name_of(algorithm);
          EXPECT_GT(time.seconds, 0);
          std::int64_t sent = 0;
          for (int rank = 0; rank < 13; ++rank) {
            for (const Step& step : program_of(schedule, rank).steps) {
              sent += sends(step.kind) ? 1 : 0;
            }
          }
          EXPECT_EQ(time.messages, sent);
        }
      }
    }
  }
}

// With 256 devices, to be quick; the benchmark does 2048.
TEST(Simulator, TheAdaptiveChoiceIsFarBelowAFlatRing) {
  const SimulatedCluster cluster = simulate_cluster(256);
  EXPECT_GE(cluster.ring_s / cluster.adaptive_s, 2.7);
  for (const SimulatedSize& size : cluster.sizes) {
    EXPECT_LE(size.adaptive_s, size.ring_s) << size.name;
    EXPECT_LE(size.adaptive_s, size.doubling_tree_ring_s) << size.name;
  }
}

TEST(Simulator, ThousandsOfRanksInSeconds) {
  MachineModel model = network();
  for (int rank = 0; rank < 4096; ++rank) model.domain_of.push_back(rank / 8);
  const auto begin = std::chrono::steady_clock::now();
  for (const Algorithm algorithm : {Algorithm::halving_doubling, Algorithm::double_tree,
                                    Algorithm::recursive_doubling, Algorithm::hierarchical}) {
    EXPECT_TRUE(time_of(algorithm, 4096, 1 << 24, model, 4).complete) << name_of(algorithm);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 20);
}

}  // namespace
}  // namespace belay::comm
