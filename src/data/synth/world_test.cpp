#include "data/synth/world.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

namespace paceline::data::synth {
namespace {

TEST(AliasTable, DrawsInProportionToTheWeights) {
  const std::vector<double> weights{5.0, 0.0, 1.0, 0.5, 3.5};
  const AliasTable table(weights);
  std::vector<double> counts(weights.size(), 0.0);
  constexpr int kDraws = 1 << 18;
  // Every cell and every part of it: evenly spaced words.
  for (std::uint32_t i = 0; i < kDraws; ++i) counts[table.draw(i << 14 | 8191)] += 1.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(counts[i] / kDraws, weights[i] / 10.0, 1e-4) << i;
  }
}

TEST(AliasTable, OneWeightIsAlwaysDrawn) {
  const std::vector<double> one{0.25};
  const AliasTable table(one);
  EXPECT_EQ(table.draw(0), 0U);
  EXPECT_EQ(table.draw(0xFFFFFFFFU), 0U);
}

TEST(Words, HaveTheMomentsOfTheirDistributions) {
  Words w(3, Use::kAnchor, 1);
  double beta = 0.0, beta_square = 0.0, exponential = 0.0, normal = 0.0, square = 0.0;
  constexpr int kDraws = 40'000;
  for (int i = 0; i < kDraws; ++i) {
    const double b = w.beta22(), z = w.normal();
    ASSERT_TRUE(b > 0.0 && b < 1.0);
    beta += b;
    beta_square += b * b;
    exponential += w.exponential();
    normal += z;
    square += z * z;
  }
  EXPECT_NEAR(beta / kDraws, 0.5, 0.005);
  EXPECT_NEAR(beta_square / kDraws, 0.3, 0.005);  // variance 1/20
  EXPECT_NEAR(exponential / kDraws, 1.0, 0.025);
  EXPECT_NEAR(normal / kDraws, 0.0, 0.025);
  EXPECT_NEAR(square / kDraws, 1.0, 0.035);
}

TEST(World, PostsAreDistinctAndGroupedByTopic) {
  Options o;
  o.items = 3000;
  o.authors = 100;
  const World world(o);
  ASSERT_EQ(world.posts().size(), 3000U);
  std::set<std::int64_t> ids;
  for (std::size_t i = 0; i < world.posts().size(); ++i) {
    const Post& p = world.posts()[i];
    ids.insert(p.id);
    EXPECT_TRUE(i == 0 || world.posts()[i - 1].topic <= p.topic);
    EXPECT_LT(p.author, 100U);
    EXPECT_TRUE(p.quality > 0.0F && p.quality < 1.0F);
    EXPECT_EQ((p.code - 1) / 16, p.topic);
    for (const auto drawn :
         {world.draw_read(p.topic, static_cast<std::uint32_t>(i * 1'400'000)),
          world.draw_shown(p.topic, static_cast<std::uint32_t>(i * 1'400'000))}) {
      ASSERT_EQ(world.posts()[drawn].topic, p.topic);
    }
  }
  EXPECT_EQ(ids.size(), 3000U);
}

TEST(World, ATopicWithoutPostsGivesAnyPost) {
  Options o;
  o.items = 3;
  o.topics = 63;
  o.authors = 1;
  o.candidates = {1, 3, 1.0};
  const World world(o);
  std::set<std::uint32_t> drawn;
  for (int t = 0; t < 63; ++t) {
    for (std::uint32_t i = 0; i < 16; ++i) drawn.insert(world.draw_shown(t, i << 28));
  }
  EXPECT_EQ(drawn.size(), 3U);
}

TEST(World, UsersHaveTwoToFourTastesThatSumToOne) {
  const World world{Options()};
  std::vector<int> topics(5, 0);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const User u = world.user(i);
    ASSERT_TRUE(u.topics >= 2 && u.topics <= 4);
    ++topics[static_cast<std::size_t>(u.topics)];
    float sum = 0.0F, looked_up = 0.0F;
    for (std::uint8_t t = 0; t < 16; ++t) looked_up += u.preference(t);
    for (const float w : u.weight) sum += w;
    EXPECT_NEAR(sum, 1.0F, 1e-5F);
    EXPECT_NEAR(looked_up, 1.0F, 1e-5F) << "its topics are distinct";
    const int apps = std::popcount(u.apps);
    EXPECT_TRUE(apps >= 2 && apps <= 8) << apps;
    double activity = 0.0;
    std::int32_t timezone = 0;
    world.presence(i, activity, timezone);
    EXPECT_EQ(activity, u.activity);
    EXPECT_EQ(timezone, u.timezone);
  }
  for (const int n : {2, 3, 4}) EXPECT_NEAR(topics[static_cast<std::size_t>(n)], 667, 80) << n;
}

TEST(World, TheSeedDecidesEverything) {
  Options a, b;
  b.seed = 2;
  const World one(a), again(a), other(b);
  EXPECT_EQ(one.user(7).apps, again.user(7).apps);
  EXPECT_EQ(one.posts()[5].id, again.posts()[5].id);
  EXPECT_NE(one.user(7).apps, other.user(7).apps);
  EXPECT_NE(one.posts()[5].id, other.posts()[5].id);
}

}  // namespace
}  // namespace paceline::data::synth
