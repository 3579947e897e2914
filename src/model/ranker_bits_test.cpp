// What must not change a bit: neighbours, place in the batch, threads, earlier calls, and that
// only candidate rows go through the last block.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/model_testing.hpp"

namespace paceline::model {
namespace {

using testing::infer;
using testing::run_step;
using testing::same_bits;
using testing::Step;
using testing::TestWeights;
using testing::World;

// Sizes at which ops use several tiles and leave remainders.
constexpr features::BatchLimits kLimits{
    .examples = 40, .tokens = 0, .history_len = 40, .candidates = 9};

std::string toml(int layers, const char* more = "") {
  return "[model]\nwidth = 48\nquery_heads = 4\nkey_heads = 2\nhead_dim = 16\nffn = 88\n"
         "table_width = 8\nlayers = " +
         std::to_string(layers) + "\n" + more + testing::kUserFeature + testing::kItemFeatures +
         testing::kActions;
}

std::vector<testing::RowSize> many_rows(int n) {
  std::vector<testing::RowSize> rows;
  for (int i = 0; i < n; ++i) rows.push_back({(i * 17) % 41, 1 + (i * 5) % 9});
  return rows;
}

// Logits of example b of a batch.
std::span<const float> of_example(const World& world, const features::Batch& batch,
                                  std::span<const float> logits, std::size_t b) {
  const std::size_t outputs = world.schema->actions().size() + world.schema->targets().size();
  const auto first = static_cast<std::size_t>(batch.cu_candidates()[b]) * outputs;
  const auto end = static_cast<std::size_t>(batch.cu_candidates()[b + 1]) * outputs;
  return logits.subspan(first, end - first);
}

class RankerBits : public ::testing::TestWithParam<const char*> {
 protected:
  World world_ = World::make(toml(2, GetParam()), kLimits);
  TestWeights weights_{world_, 3};
  features::RowBlock block_ = world_.rows(many_rows(37), 5);
};

TEST_P(RankerBits, AnExampleScoresTheSameAloneAndAtAnyPlace) {
  const auto batch = world_.cut(block_);
  const auto logits = infer(world_, weights_.view(), batch, 2);
  std::vector<std::int64_t> reversed, rotated;
  const auto n = static_cast<std::size_t>(block_.rows);
  for (std::size_t i = 0; i < n; ++i) {
    reversed.push_back(static_cast<std::int64_t>(n - 1 - i));
    rotated.push_back(static_cast<std::int64_t>((i + 5) % n));
  }
  const auto backward_batch = world_.cut(block_, reversed);
  const auto backward = infer(world_, weights_.view(), backward_batch);
  const auto rotated_batch = world_.cut(block_, rotated);
  const auto forward = infer(world_, weights_.view(), rotated_batch);
  for (std::size_t i = 0; i < n; ++i) {
    const auto want = of_example(world_, batch, logits, i);
    EXPECT_TRUE(same_bits(want, of_example(world_, backward_batch, backward, n - 1 - i))) << i;
    EXPECT_TRUE(same_bits(want, of_example(world_, rotated_batch, forward, (i + n - 5) % n))) << i;
    const auto alone = world_.cut(block_, {static_cast<std::int64_t>(i)});
    EXPECT_TRUE(same_bits(want, infer(world_, weights_.view(), alone))) << i;
  }
}

TEST_P(RankerBits, ThreadsChangeNothing) {
  const auto batch = world_.cut(block_);
  const Step one = run_step(world_, weights_.view(), batch, 1);
  for (const int threads : {2, 3}) {
    const Step many = run_step(world_, weights_.view(), batch, threads);
    EXPECT_EQ(one.loss, many.loss) << threads;
    EXPECT_EQ(one.by_output, many.by_output) << threads;
    EXPECT_TRUE(same_bits(one.logits, many.logits)) << threads;
    EXPECT_TRUE(same_bits(one.d_dense, many.d_dense)) << threads;
    EXPECT_TRUE(same_bits(one.d_rows, many.d_rows)) << threads;
  }
}

TEST_P(RankerBits, TrainingAndInferenceForwardAgree) {
  const auto batch = world_.cut(block_);
  EXPECT_TRUE(same_bits(run_step(world_, weights_.view(), batch).logits,
                        infer(world_, weights_.view(), batch)));
}

// A further block whose outputs are zero lets all rows go through the block before it.
TEST_P(RankerBits, TheLastBlockOnCandidatesAloneChangesNoNumber) {
  const World deeper = World::make(toml(3, GetParam()), kLimits);
  TestWeights more(deeper, 3);
  for (const auto& spec : world_.layout->specs()) {
    std::copy_n(weights_.dense.begin() + spec.offset, spec.count,
                more.dense.begin() + deeper.layout->find(spec.name).offset);
  }
  more.table = weights_.table;
  for (const char* name : {"blocks.2.attention.out.weight", "blocks.2.mlp.down.weight"}) {
    const auto& spec = deeper.layout->find(name);
    std::fill_n(more.dense.begin() + spec.offset, spec.count, 0.0F);
  }
  const auto batch = world_.cut(block_);
  const Step restricted = run_step(world_, weights_.view(), batch);
  const Step full = run_step(deeper, more.view(), batch);
  EXPECT_TRUE(same_bits(restricted.logits, full.logits));
  EXPECT_EQ(restricted.loss, full.loss);
  // Gradients add the same terms in chunks that differ.
  for (const auto& spec : world_.layout->specs()) {
    const auto* a = restricted.d_dense.data() + spec.offset;
    const auto* b = full.d_dense.data() + deeper.layout->find(spec.name).offset;
    double largest = 0.0;
    for (std::int64_t i = 0; i < spec.count; ++i)
      largest = std::max(largest, std::abs(double{a[i]}));
    for (std::int64_t i = 0; i < spec.count; ++i) {
      ASSERT_NEAR(a[i], b[i], 1e-5 * largest) << spec.name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, RankerBits,
                         ::testing::Values("", "causal = true\ncap_kind = \"tanh\"\ncap = 5.0\n"),
                         [](const auto& one) { return one.index == 0 ? "plain" : "causal_cap"; });

TEST(RankerCalls, LeaveNothingBehindForTheNext) {
  const World world = World::make(toml(2), kLimits);
  const TestWeights weights(world, 3);
  const auto block = world.rows(many_rows(37), 5);
  const auto big = world.cut(block);
  const auto small = world.cut(block, {4, 9});
  const Step fresh = run_step(world, weights.view(), small);

  pipeline::TaskPool pool(1);
  ops::Context ctx(pool);
  Ranker ranker(world.config, *world.schema, world.limits, ops::cpu_ops(), true);
  const std::size_t memory = ranker.memory_bytes();
  std::vector<float> d_dense(weights.dense.size());
  std::vector<float> d_rows(
      static_cast<std::size_t>(ranker.max_lookups() * world.config.table_width));
  for (const auto* batch : {&big, &small}) {
    ranker.forward(ctx, weights.view(), *batch);
    ranker.loss(ctx, *batch, {});
    ranker.backward(ctx, weights.view(), *batch, {d_dense, d_rows});
  }
  EXPECT_TRUE(same_bits(d_dense, fresh.d_dense));
  EXPECT_TRUE(same_bits({d_rows.data(), fresh.d_rows.size()}, fresh.d_rows));
  EXPECT_EQ(ranker.memory_bytes(), memory);
  // A second backward of the same forward gives the same.
  ranker.backward(ctx, weights.view(), small, {d_dense, d_rows});
  EXPECT_TRUE(same_bits(d_dense, fresh.d_dense));
  // An evaluation in between, too, when the forward and the loss are run again.
  const auto logits = ranker.forward(ctx, weights.view(), small);
  EXPECT_TRUE(same_bits(logits, fresh.logits));
}

TEST(RankerCalls, BatchesWithoutCandidatesHaveNoLossAndNoGradient) {
  const World world = World::make(toml(2), kLimits);
  const TestWeights weights(world, 3);
  const auto block = world.rows({{4, 0}, {0, 0}}, 5);
  for (const auto& which : {std::vector<std::int64_t>{}, {0}, {0, 1}, {1}}) {
    const auto batch = world.cut(block, which);
    const Step step = run_step(world, weights.view(), batch);
    EXPECT_TRUE(step.logits.empty());
    EXPECT_EQ(step.loss, 0.0);
    EXPECT_EQ(step.by_output, std::vector<double>(3, 0.0));
    EXPECT_EQ(step.lookups.size(),
              which.size() * 2U + static_cast<std::size_t>(batch.history_tokens()) * 5U);
    for (const float v : step.d_dense) ASSERT_EQ(v, 0.0F);
    for (const float v : step.d_rows) ASSERT_EQ(v, 0.0F);
  }
}

TEST(RankerCalls, InferenceTakesLessMemoryAtAnyDepth) {
  const World shallow = World::make(toml(2), kLimits);
  const World deep = World::make(toml(8), kLimits);
  const auto memory = [](const World& w, bool training) {
    return Ranker(w.config, *w.schema, w.limits, ops::cpu_ops(), training).memory_bytes();
  };
  EXPECT_LT(memory(shallow, false), memory(shallow, true));
  EXPECT_EQ(memory(shallow, false), memory(deep, false));
}

TEST(RankerCalls, LookupsOfALimitedBatchFit) {
  // Fewer tokens than examples x (prefix + history + candidates).
  const features::BatchLimits limits{
      .examples = 6, .tokens = 50, .history_len = 40, .candidates = 9};
  const World world = World::make(toml(2), limits);
  const TestWeights weights(world, 3);
  const auto block = world.rows({{40, 9}, {38, 9}, {7, 3}, {30, 9}, {1, 1}}, 5);
  for (std::int64_t row : {0, 1, 3}) {
    const auto batch = world.cut(block, {row});
    const Step step = run_step(world, weights.view(), batch);
    const Ranker ranker(world.config, *world.schema, limits, ops::cpu_ops(), true);
    EXPECT_LE(static_cast<std::int64_t>(step.lookups.size()), ranker.max_lookups());
  }
}

}  // namespace
}  // namespace paceline::model
