#include "train/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace paceline::train {
namespace {

constexpr const char* kFeatures = R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "h"
candidate_column = "c"
rows = 16
hashes = 1
[[actions]]
name = "like"
bit = 1
[model]
width = 8
layers = 1
query_heads = 1
key_heads = 1
head_dim = 8
ffn = 8
table_width = 4
)";

struct Fixture {
  Fixture()
      : config(*Config::parse(kFeatures, "test.toml")),
        schema(*features::Schema::from_config(config)),
        model(*model::ModelConfig::from_config(config)),
        layout(model, schema),
        pool(2),
        ctx(pool),
        state(layout.size(), schema.table_rows(), model.table_width),
        dense(static_cast<std::size_t>(layout.size()), 0.01F),
        lookups{3, -1, 3, 5},
        rows(lookups.size() * 4, 0.5F) {
    for (float& p : state.dense()) p = 1.0F;
    for (float& p : state.table()) p = 1.0F;
  }

  StepOutcome step(OptimizerConfig optimizer_config, double loss) {
    Optimizer optimizer(optimizer_config, layout, ops::cpu_ops(), 8);
    return optimizer.step(ctx, state, {dense, rows, lookups}, loss, 1.0);
  }

  Config config;
  features::Schema schema;
  model::ModelConfig model;
  model::ParameterLayout layout;
  pipeline::TaskPool pool;
  ops::Context ctx;
  ModelState state;
  std::vector<float> dense;
  std::vector<std::int32_t> lookups;
  std::vector<float> rows;
};

TEST(Optimizer, UpdatesDenseParametersAndTouchedRowsOnly) {
  Fixture f;
  const StepOutcome outcome =
      f.step({.lr = 0.1, .weight_decay = 0.0, .clip = 0.0, .table_lr = 0.2}, 1.0);
  EXPECT_TRUE(outcome.applied);
  EXPECT_EQ(f.state.adam_steps, 1);
  EXPECT_NEAR(outcome.grad_norm, 0.01 * std::sqrt(static_cast<double>(f.layout.size())), 1e-6);
  // The first Adam step is lr in the direction of the sign.
  EXPECT_NEAR(f.state.dense()[0], 0.9F, 1e-5F);
  // Row 3 was looked up twice: g = 1, acc = 1, step = table_lr.
  EXPECT_NEAR(f.state.table()[3 * 4], 0.8F, 1e-6F);
  EXPECT_NEAR(f.state.table()[5 * 4], 0.8F, 1e-6F);
  EXPECT_NEAR(f.state.table_acc()[3], 1.0F, 1e-6F);
  EXPECT_NEAR(f.state.table_acc()[5], 0.25F, 1e-6F);
  EXPECT_EQ(f.state.table()[4 * 4], 1.0F);
}

TEST(Optimizer, DecaysMatricesOnly) {
  Fixture f;
  std::fill(f.dense.begin(), f.dense.end(), 0.0F);
  std::fill(f.rows.begin(), f.rows.end(), 0.0F);
  ASSERT_TRUE(f.step({.lr = 0.1, .weight_decay = 0.5, .clip = 1.0}, 1.0).applied);
  EXPECT_NEAR(f.state.dense()[0], 0.95F, 1e-6F);
  const auto& scale = f.layout.find("final_norm.scale");
  EXPECT_EQ(f.state.dense()[static_cast<std::size_t>(scale.offset)], 1.0F);
}

TEST(Optimizer, TheClipScalesTheDenseGradient) {
  Fixture small, large;
  for (float& g : large.dense) g *= 1000.0F;
  const OptimizerConfig config{.lr = 0.1, .eps = 1e-2, .weight_decay = 0.0, .clip = 1e-3};
  ASSERT_TRUE(small.step(config, 1.0).applied);
  ASSERT_TRUE(large.step(config, 1.0).applied);
  // Both are clipped to the same norm, and eps makes the step depend on it.
  EXPECT_NEAR(small.state.dense()[0], large.state.dense()[0], 1e-6F);
  EXPECT_LT(small.state.dense()[0], 1.0F);
}

TEST(Optimizer, NothingMovesWhenAnythingIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto spoil = [&](int what) {
    Fixture f;
    double loss = 1.0;
    if (what == 0) loss = std::numeric_limits<double>::quiet_NaN();
    if (what == 1) f.dense.back() = inf;
    if (what == 2) f.rows.back() = nan;
    const StepOutcome outcome = f.step({}, loss);
    EXPECT_FALSE(outcome.applied) << what;
    EXPECT_EQ(f.state.adam_steps, 0) << what;
    for (const float p : f.state.dense()) ASSERT_EQ(p, 1.0F) << what;
    for (const float p : f.state.table()) ASSERT_EQ(p, 1.0F) << what;
    for (const float p : f.state.adam_m()) ASSERT_EQ(p, 0.0F) << what;
    for (const float p : f.state.table_acc()) ASSERT_EQ(p, 0.0F) << what;
  };
  for (int what = 0; what < 3; ++what) spoil(what);
}

}  // namespace
}  // namespace paceline::train
