#include "belay/model/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "belay/model/parameter_pool.h"

namespace belay {
namespace {

ParameterTable table_of(Family family, std::int64_t layers = 3, std::int64_t hidden = 48) {
  ModelConfig config = family_defaults(family);
  config.layers = layers;
  config.hidden = hidden;
  config.heads = 4;
  config.kv_heads = family == Family::gpt2 ? 4 : 2;
  config.ffn = 3 * hidden + 1;
  config.vocab = 1003;
  config.seq_len = 17;
  finish_config(config);
  return make_parameter_table(config);
}

// Every element of every parameter, owned by how many ranks.
std::vector<int> owners(const ParameterTable& table, int ranks, std::int64_t group_elements) {
  std::vector<int> count(static_cast<std::size_t>(table.flat_elements()));
  for (int rank = 0; rank < ranks; ++rank) {
    const ShardMap map(table, {ZeroStage::moments, rank, ranks, group_elements});
    std::int64_t last = -1;
    for (const ShardRun& run : map.runs()) {
      EXPECT_EQ(run.flat, table[run.parameter].offset + run.begin);
      EXPECT_GE(run.shard, last);
      EXPECT_LE(run.shard + run.count, map.shard_elements());
      EXPECT_EQ(run.begin % map.piece_elements(), 0);
      last = run.shard + run.count;
      for (std::int64_t i = 0; i < run.count; ++i) ++count[static_cast<std::size_t>(run.flat + i)];
    }
  }
  return count;
}

TEST(ShardMapTest, EveryElementHasOneOwner) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const ParameterTable table = table_of(family);
    for (const int ranks : {1, 2, 3, 7, 64}) {
      for (const std::int64_t group : {0, 1, 1000, 1 << 20}) {
        const std::vector<int> count = owners(table, ranks, group);
        for (const Parameter& parameter : table.all()) {
          const auto begin = count.begin() + parameter.offset;
          EXPECT_TRUE(std::all_of(begin, begin + parameter.elements(),
                                  [](int owned) { return owned == 1; }))
              << parameter.name << " on " << ranks << " ranks";
        }
      }
    }
  }
}

TEST(ShardMapTest, GroupsCoverTheStateUnitByUnit) {
  const ParameterTable table = table_of(Family::gpt2);
  const ShardMap map(table, {ZeroStage::weights, 1, 3, 5000});
  ASSERT_EQ(map.units().size(), 5U);  // in front, three layers, behind
  std::int64_t at = 0;
  for (std::size_t unit = 0; unit < map.units().size(); ++unit) {
    const ShardUnit& range = map.units()[unit];
    EXPECT_EQ(range.begin, at);
    for (int number = range.first_group; number < range.last_group; ++number) {
      const ShardGroup& group = map.groups()[static_cast<std::size_t>(number)];
      EXPECT_EQ(group.unit, static_cast<int>(unit));
      EXPECT_EQ(group.begin, at);
      EXPECT_LE(group.elements(), 5000 + map.piece_elements());
      EXPECT_EQ(group.bounds.front(), 0);
      EXPECT_EQ(group.bounds.back(), group.elements());
      EXPECT_TRUE(std::is_sorted(group.bounds.begin(), group.bounds.end()));
      EXPECT_EQ(group.own_begin, group.begin + group.bounds[1]);
      at = group.end;
    }
    EXPECT_EQ(range.end, at);
  }
  EXPECT_EQ(at, table.flat_elements());
}

TEST(ShardMapTest, SharesAreEven) {
  const ParameterTable table = table_of(Family::llama, 4, 128);
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const ShardMap map(table, {ZeroStage::moments, rank, ranks, 1 << 20});
      const double even = static_cast<double>(table.flat_elements()) / ranks;
      EXPECT_NEAR(static_cast<double>(map.shard_elements()), even, 0.05 * even)
          << rank << " of " << ranks;
    }
  }
}

// A run's pieces are those of its parameter, whoever owns them.
TEST(ShardMapTest, PiecesDoNotDependOnRanks) {
  const ParameterTable table = table_of(Family::gpt2);
  const ShardMap one(table, {});
  for (int index = 0; index < table.size(); ++index) {
    ASSERT_EQ(one.runs_of_parameter(index).size(), 1U);
    EXPECT_EQ(one.runs_of_parameter(index).front().piece, one.first_piece(index));
    EXPECT_EQ(one.runs_of_parameter(index).front().shard, table[index].offset);
  }
  for (int rank = 0; rank < 5; ++rank) {
    const ShardMap map(table, {ZeroStage::gradients, rank, 5, 777});
    EXPECT_EQ(map.piece_elements(), one.piece_elements());
    EXPECT_EQ(map.piece_count(), one.piece_count());
    for (const ShardRun& run : map.runs()) {
      EXPECT_EQ(run.piece, one.first_piece(run.parameter) + run.begin / one.piece_elements());
    }
  }
}

TEST(ParameterPoolTest, LayersTakeTurnsAndEndsDoUnlessTied) {
  for (const bool tied : {true, false}) {
    ModelConfig config = family_defaults(Family::llama);
    config.layers = 3;
    config.hidden = 32;
    config.heads = 4;
    config.ffn = 80;
    config.vocab = 301;
    config.seq_len = 16;
    config.tie_embeddings = tied;
    finish_config(config);
    const ParameterTable table = make_parameter_table(config);
    const ShardMap map(table, {ZeroStage::weights, 0, 2, 1000});
    const ParameterPool pool(table, map);
    EXPECT_TRUE(pool.shared(1, 2));
    EXPECT_FALSE(pool.shared(0, 1));
    EXPECT_EQ(pool.shared(0, 4), !tied);
    EXPECT_EQ(pool.of(table.find("layers.0.ffn.up.weight")),
              pool.of(table.find("layers.2.ffn.up.weight")));
    const int embedding = table.find("embedding.weight");
    const std::int64_t end = pool.of(embedding) + table[embedding].elements();
    EXPECT_LE(end, pool.elements());
    EXPECT_LT(pool.elements(), table.flat_elements());
    const std::int64_t norm = pool.of(table.find("final_norm.weight"));
    EXPECT_EQ(norm >= end, tied);
    EXPECT_GE(pool.of(embedding), map.units()[1].end - map.units()[1].begin);
  }
}

}  // namespace
}  // namespace belay
