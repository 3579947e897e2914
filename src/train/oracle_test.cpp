// What the true probabilities of the synthetic world reach, and how an evaluation finds them.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "data/synth/rows.hpp"
#include "data/synth/synth.hpp"
#include "data/testing/impressions.hpp"
#include "train/evaluate.hpp"

namespace paceline::train {
namespace {

namespace synth = data::synth;

struct Drawn {
  std::vector<float> probabilities;
  std::vector<std::uint8_t> labels;
  double rate() const {
    double sum = 0.0;
    for (const auto y : labels) sum += y;
    return sum / static_cast<double>(labels.size());
  }
};

// Candidates of the default world; their histories are left out, which changes no probability.
Drawn draw(int action, std::int64_t rows, std::uint64_t seed) {
  synth::Options options;
  options.seed = seed;
  options.history = {{0, 0, 1.0}};
  const synth::World world(options);
  synth::RowDrawer drawer(options, world);
  synth::RowColumns columns;
  columns.clear();
  for (std::int64_t r = 0; r < rows; ++r) drawer.append(r, columns);
  Drawn d;
  d.probabilities = columns.oracle[static_cast<std::size_t>(action)];
  const int bit = synth::kActionInfos[static_cast<std::size_t>(action)].bit;
  for (const auto actions : columns.candidate_actions) {
    d.labels.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(actions) >> bit & 1));
  }
  return d;
}

TEST(Oracle, TheDefaultWorldsCeilingIsAsDocumented) {
  double auc = 0.0, rate = 0.0;
  constexpr int kSeeds = 3;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Drawn fav = draw(0, 4000, seed);
    auc += *exact_auc(fav.probabilities, fav.labels) / kSeeds;
    rate += fav.rate() / kSeeds;
  }
  EXPECT_NEAR(rate, 0.059, 0.003);
  EXPECT_TRUE(auc > 0.655 && auc < 0.675) << auc;
}

std::string config_text(const std::string& first_action) {
  return R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item_id"
candidate_column = "candidate_item_id"
rows = 64
[[actions]]
bit = 1
name = ")" +
         first_action + R"("
[[actions]]
name = "share"
bit = 37
[[actions]]
name = "not_dwelled"
bit = 12
train = false
[[targets]]
name = "dwell"
candidate_column = "candidate_dwell"
)";
}

features::Schema schema_of(const std::string& text) {
  auto config = Config::parse(text, "test.toml");
  PL_CHECK(config.ok(), "a config");
  auto schema = features::Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema ? "" : schema.error().text());
  return *schema;
}

TEST(Oracle, IsFoundForEachTrainedActionThatHasOne) {
  const data::testing::TempDir dir;
  synth::Options options;
  options.rows = 40;
  options.items = 200;
  options.history = {{0, 5, 1.0}};
  ASSERT_TRUE(synth::synthesize(dir.file("out"), options));
  const std::vector<std::string> paths{dir.file("out")};

  const auto both = open_eval_source(paths, schema_of(config_text("fav")));
  ASSERT_TRUE(both) << both.error().text();
  ASSERT_TRUE(both->oracle);
  EXPECT_EQ(both->oracle->target, (std::vector<std::int32_t>{1, 2, -1}))
      << "after the target of the config; none for an action that is not trained";
  EXPECT_EQ(both->oracle->schema.targets().size(), 3U);

  const auto one = open_eval_source(paths, schema_of(config_text("like")));
  ASSERT_TRUE(one) << one.error().text();
  ASSERT_TRUE(one->oracle);
  EXPECT_EQ(one->oracle->target, (std::vector<std::int32_t>{-1, 1, -1}));
}

TEST(Oracle, DataWithoutOneAreEvaluatedWithoutAndErrorsStay) {
  const data::testing::TempDir dir;
  data::testing::write_impressions(dir.path(), {.rows = 20});
  const auto schema = schema_of(data::testing::impression_features());
  const auto plain = open_eval_source({dir.path().string()}, schema);
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_FALSE(plain->oracle);
  EXPECT_EQ(plain->source->rows(), 20);

  const auto missing = open_eval_source({dir.path().string()}, schema_of(config_text("fav")));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("candidate_dwell"), std::string::npos)
      << missing.error().text();
}

}  // namespace
}  // namespace paceline::train
