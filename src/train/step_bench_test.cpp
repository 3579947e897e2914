#include "train/step_bench.hpp"

#include <gtest/gtest.h>

namespace paceline::train {
namespace {

constexpr const char* kConfig = R"(
[run]
dir = "run"
[batch]
examples = 3
history_len = 5
candidates = 2
[model]
width = 16
layers = 2
query_heads = 2
key_heads = 1
head_dim = 8
ffn = 32
table_width = 4
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 16
hashes = 2
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "h_item"
candidate_column = "c_item"
rows = 64
hashes = 1
[[features]]
name = "place"
scope = "event"
kind = "category"
history_column = "h_place"
candidate_column = "c_place"
rows = 3
[[features]]
name = "done"
scope = "history"
kind = "multi_hot"
column = "h_done"
size = 9
[[actions]]
name = "like"
bit = 1
)";

TrainConfig config_of(const std::vector<std::string>& sets = {}) {
  auto read = Config::parse(kConfig, "test.toml");
  PL_CHECK(read.ok(), read.error().text());
  for (const auto& set : sets) PL_CHECK(read->override_with(set).ok(), set);
  auto config = TrainConfig::from_config(*read);
  PL_CHECK(config.ok(), config.error().text());
  return std::move(*config);
}

features::Batch full_batch(const TrainConfig& config, const features::BatchLayout& layout) {
  const auto block = random_rows(config.schema, config.limits, config.limits.examples, 1);
  features::Batch batch(layout);
  features::BatchCutter cutter(config.schema, layout);
  cutter.begin(batch);
  for (std::int64_t row = 0; row < block.rows; ++row) EXPECT_TRUE(cutter.append(block, row));
  return batch;
}

TEST(StepBench, RandomRowsAreFullAndWithinTheirFeatures) {
  const TrainConfig config = config_of();
  const features::BatchLayout layout(config.schema, config.limits);
  const auto batch = full_batch(config, layout);
  EXPECT_EQ(batch.examples(), 3);
  EXPECT_EQ(batch.tokens(), 3 * (1 + 5 + 2));
  EXPECT_EQ(batch.cuts(), features::CutCounts{}) << "nothing unknown, nothing cut";
}

TEST(StepBench, UsefulFlopCountsWeightsAndPairs) {
  const TrainConfig config = config_of();
  const features::BatchLayout layout(config.schema, config.limits);
  const auto batch = full_batch(config, layout);
  // Rows times inputs times outputs. A block: queries, keys and values, output, MLP.
  const double qkv = 16 * (16 + 16), tail = 16 * 16 + 2 * 16 * 32;
  const double first = 24 * (qkv + tail);
  const double last = 24 * 16 * 16 + 6 * (16 * 16 + tail);
  const double head = 6 * 16;
  const double tokens = 3 * 8 * 16 + 15 * (4 + 3 + 9) * 16 + 6 * (4 + 3) * 16;
  // A history row reads 6 rows, a candidate those and itself.
  const double pairs_first = 3 * (6 * 6 + 2 * 7), pairs_last = 3 * 2 * 7;
  EXPECT_DOUBLE_EQ(useful_flop(config.model, config.schema, batch),
                   6 * (first + last + head + tokens) + 14 * 16 * (pairs_first + pairs_last));
  // Causal: a history row reads those before it and itself.
  const TrainConfig causal = config_of({"model.causal=true"});
  EXPECT_DOUBLE_EQ(useful_flop(config.model, config.schema, batch) -
                       useful_flop(causal.model, causal.schema, batch),
                   14 * 16 * 3 * (36.0 - 21.0));
}

TEST(StepBench, StepsTrainAndAreTimed) {
  const auto bench = bench_step(config_of({"train.device=cpu"}), {.steps = 12, .warm_up = 3});
  ASSERT_TRUE(bench.ok()) << bench.error().text();
  EXPECT_EQ(bench->device, "cpu");
  EXPECT_EQ(bench->examples, 3);
  EXPECT_GT(bench->ms, 0.0);
  EXPECT_LE(bench->fastest_ms, bench->ms);
  EXPECT_GE(bench->slowest_ms, bench->ms);
  EXPECT_LT(bench->last_loss, bench->first_loss);
  EXPECT_TRUE(bench->kernels.empty());
}

TEST(StepBench, ALossThatDoesNotFallIsNoResult) {
  const auto bench = bench_step(
      config_of({"train.device=cpu", "optimizer.lr=0", "optimizer.table_lr=0"}), {.steps = 2});
  ASSERT_FALSE(bench.ok());
  EXPECT_NE(bench.error().text().find("did not fall"), std::string::npos) << bench.error().text();
}

}  // namespace
}  // namespace paceline::train
