#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "model/model_testing.hpp"

namespace paceline::model {
namespace {

using testing::same_bits;
using testing::World;

std::string toml(int layers) {
  return "[model]\nwidth = 40\nlayers = " + std::to_string(layers) +
         "\nquery_heads = 4\nkey_heads = 2\nhead_dim = 8\nffn = 72\ntable_width = 6\n" +
         testing::kUserFeature + testing::kProfileFeatures + testing::kItemFeatures +
         testing::kActions + testing::kTargets;
}

std::vector<float> initialized(const World& world, std::uint64_t seed) {
  std::vector<float> flat(static_cast<std::size_t>(world.layout->size()), 777.0F);
  initialize(*world.layout, seed, flat);
  return flat;
}

// Root mean square of columns [first, first + columns) of a matrix.
double rms(const ParameterSpec& spec, const std::vector<float>& flat, std::int64_t first,
           std::int64_t columns) {
  double sum = 0.0;
  const std::int64_t width = spec.shape[1];
  for (std::int64_t r = 0; r < spec.shape[0]; ++r) {
    for (std::int64_t c = first; c < first + columns; ++c) {
      const double v = flat[static_cast<std::size_t>(spec.offset + r * width + c)];
      sum += v * v;
    }
  }
  return std::sqrt(sum / static_cast<double>(spec.shape[0] * columns));
}

TEST(Parameters, AreNamedOnceAndDoNotOverlap) {
  const World world = World::make(toml(3));
  std::set<std::string> names;
  std::int64_t end = 0;
  for (const auto& spec : world.layout->specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(spec.offset % 64, 0) << spec.name;
    EXPECT_GE(spec.offset, end) << spec.name;
    std::int64_t count = 1;
    for (const auto d : spec.shape) count *= d;
    EXPECT_EQ(spec.count, count) << spec.name;
    EXPECT_GT(spec.count, 0) << spec.name;
    end = spec.offset + spec.count;
    // Matrices, and only they, decay and lie in front.
    EXPECT_EQ(spec.decay, spec.shape.size() == 2) << spec.name;
    EXPECT_EQ(spec.decay, spec.offset < world.layout->decay_end()) << spec.name;
    EXPECT_EQ(&world.layout->find(spec.name), &spec);
  }
  EXPECT_LE(end, world.layout->size());
  EXPECT_EQ(names.size(), 4U + 3U * 8U + 2U);
}

TEST(Parameters, HaveTheShapesOfTheModel) {
  const World world = World::make(toml(2));
  using Shape = std::vector<std::int64_t>;
  const auto shape = [&](const char* name) { return world.layout->find(name).shape; };
  EXPECT_EQ(shape("tokens.user.weight"), (Shape{40, 2 * 6}));
  EXPECT_EQ(shape("tokens.profile.weight"), (Shape{40, 5 + 6 + 1}));
  EXPECT_EQ(shape("tokens.history.weight"), (Shape{40, 2 * 6 + 3 + 6 + 3 * 6}));
  EXPECT_EQ(shape("tokens.candidate.weight"), (Shape{40, 2 * 6 + 3 * 6 + 1}));
  EXPECT_EQ(shape("blocks.1.attention.norm.scale"), (Shape{40}));
  EXPECT_EQ(shape("blocks.1.attention.qkv.weight"), (Shape{(4 + 2 * 2) * 8, 40}));
  EXPECT_EQ(shape("blocks.1.attention.q_norm.scale"), (Shape{32}));
  EXPECT_EQ(shape("blocks.1.attention.k_norm.scale"), (Shape{16}));
  EXPECT_EQ(shape("blocks.1.attention.out.weight"), (Shape{40, 32}));
  EXPECT_EQ(shape("blocks.1.mlp.norm.scale"), (Shape{40}));
  EXPECT_EQ(shape("blocks.1.mlp.up.weight"), (Shape{72, 40}));
  EXPECT_EQ(shape("blocks.1.mlp.down.weight"), (Shape{40, 72}));
  EXPECT_EQ(shape("final_norm.scale"), (Shape{40}));
  EXPECT_EQ(shape("head.weight"), (Shape{3 + 2, 40}));
}

TEST(Parameters, StartWithTheScalesOfTheirKind) {
  const World world = World::make(toml(2));
  const auto flat = initialized(world, 5);
  const auto& layout = *world.layout;
  const double row = 1.0 / std::sqrt(6.0 * 40.0);
  // rms over n draws has a relative spread of 1 / sqrt(2 n): 4 of them.
  const auto expect_std = [&](const char* name, std::int64_t first, std::int64_t columns,
                              double std) {
    const auto& spec = layout.find(name);
    const double n = static_cast<double>(spec.shape[0] * columns);
    EXPECT_NEAR(rms(spec, flat, first, columns) / std, 1.0, 4.0 / std::sqrt(2.0 * n)) << name;
  };
  expect_std("tokens.user.weight", 0, 12, row);
  expect_std("tokens.profile.weight", 0, 5, 1.0 / 40);
  expect_std("tokens.profile.weight", 5, 6, row);
  expect_std("tokens.profile.weight", 11, 1, 1.0 / 40);
  expect_std("tokens.history.weight", 0, 12, row);
  expect_std("tokens.history.weight", 12, 9, 1.0 / 40);
  expect_std("tokens.history.weight", 21, 18, row);
  expect_std("tokens.candidate.weight", 0, 30, row);
  expect_std("blocks.0.attention.qkv.weight", 0, 40, 1.0 / std::sqrt(40.0));
  expect_std("blocks.0.attention.out.weight", 0, 32, 1.0 / std::sqrt(32.0));
  expect_std("blocks.0.mlp.up.weight", 0, 40, 1.0 / std::sqrt(40.0));
  expect_std("blocks.0.mlp.down.weight", 0, 72, 1.0 / std::sqrt(72.0));
  expect_std("head.weight", 0, 40, 1.0 / 40);

  std::vector<bool> used(flat.size(), false);
  for (const auto& spec : layout.specs()) {
    for (std::int64_t i = spec.offset; i < spec.offset + spec.count; ++i) {
      used[static_cast<std::size_t>(i)] = true;
      if (!spec.decay) {
        EXPECT_EQ(flat[static_cast<std::size_t>(i)], 1.0F) << spec.name;
      }
    }
  }
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (!used[i]) {
      EXPECT_EQ(flat[i], 0.0F) << "gap at " << i;
    }
  }
}

TEST(Parameters, StartFromTheSeedAndTheirNameAlone) {
  const World small = World::make(toml(1));
  const World deep = World::make(toml(3));
  const auto a = initialized(small, 7);
  EXPECT_TRUE(same_bits(a, initialized(small, 7)));
  EXPECT_FALSE(same_bits(a, initialized(small, 8)));
  const auto b = initialized(deep, 7);
  for (const auto& spec : small.layout->specs()) {
    const auto& other = deep.layout->find(spec.name);
    EXPECT_TRUE(same_bits({a.data() + spec.offset, static_cast<std::size_t>(spec.count)},
                          {b.data() + other.offset, static_cast<std::size_t>(other.count)}))
        << spec.name;
  }
  const auto& first = deep.layout->find("blocks.0.mlp.up.weight");
  const auto& second = deep.layout->find("blocks.1.mlp.up.weight");
  EXPECT_FALSE(same_bits({b.data() + first.offset, static_cast<std::size_t>(first.count)},
                         {b.data() + second.offset, static_cast<std::size_t>(second.count)}));
}

TEST(Parameters, TableRowsStartWithTheirScale) {
  std::vector<float> table(500 * 16), again(500 * 16);
  initialize_table(3, 16, table);
  initialize_table(3, 16, again);
  EXPECT_TRUE(same_bits(table, again));
  double sum = 0.0;
  for (const float v : table) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(sum / 8000.0) * 4.0, 1.0, 4.0 / std::sqrt(16000.0));
  // A longer table starts with the same rows.
  std::vector<float> longer(501 * 16);
  initialize_table(3, 16, longer);
  EXPECT_TRUE(same_bits(table, {longer.data(), table.size()}));
}

}  // namespace
}  // namespace paceline::model
