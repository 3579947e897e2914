// Tests only: small configs, random rows and batches of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "core/rng.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "model/ranker.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::model::testing {

inline constexpr const char* kUserFeature = R"(
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 13
hashes = 2
)";
inline constexpr const char* kProfileFeatures = R"(
[[features]]
name = "country"
scope = "user"
token = "profile"
kind = "category"
column = "country"
rows = 5
[[features]]
name = "city"
scope = "user"
token = "profile"
kind = "id"
column = "city"
rows = 7
hashes = 1
[[features]]
name = "fame"
scope = "user"
token = "profile"
kind = "number"
column = "fame"
)";
inline constexpr const char* kItemFeatures = R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item"
candidate_column = "candidate_item"
rows = 19
hashes = 2
[[features]]
name = "done"
scope = "history"
kind = "multi_hot"
column = "history_done"
size = 3
[[features]]
name = "age"
scope = "history"
kind = "bucket"
column = "history_time"
minus = "request_time"
boundaries = "log2"
buckets = 6
[[features]]
name = "author"
scope = "event"
kind = "id"
history_column = "history_author"
candidate_column = "candidate_author"
rows = 11
hashes = 3
[[features]]
name = "price"
scope = "candidate"
kind = "number"
column = "candidate_price"
)";
inline constexpr const char* kActions = R"(
[[actions]]
name = "seen"
bit = 0
train = false
[[actions]]
name = "like"
bit = 2
[[actions]]
name = "love"
bit = 1
weight = 0.5
)";
inline constexpr const char* kTargets = R"(
[[targets]]
name = "dwell"
candidate_column = "dwell"
loss = "sigmoid_mae"
cap = 30.0
weight = 0.7
[[targets]]
name = "watch"
candidate_column = "watch"
loss = "tweedie"
cap = 8.0
weight = 0.3
)";

// How long each row's history and candidates are.
struct RowSize {
  int history = 0;
  int candidates = 0;
};

// A config with its schema and layout, and a batch buffer to cut rows into.
struct World {
  ModelConfig config;
  std::unique_ptr<features::Schema> schema;
  features::BatchLimits limits;
  std::unique_ptr<ParameterLayout> layout;
  std::unique_ptr<features::BatchLayout> batch_layout;

  static World make(const std::string& toml,
                    const features::BatchLimits& limits = {
                        .examples = 8, .tokens = 0, .history_len = 12, .candidates = 5}) {
    auto config = Config::parse(toml, "test.toml");
    EXPECT_TRUE(config.ok());
    auto schema = features::Schema::from_config(*config);
    EXPECT_TRUE(schema.ok()) << (schema.ok() ? "" : schema.error().text());
    auto model = ModelConfig::from_config(*config);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().text());
    World w;
    w.config = *model;
    w.schema = std::make_unique<features::Schema>(*schema);
    w.limits = limits;
    w.layout = std::make_unique<ParameterLayout>(w.config, *w.schema);
    w.batch_layout = std::make_unique<features::BatchLayout>(*w.schema, limits);
    return w;
  }

  // Random values for every column that the schema reads; small ids, zeros (missing) among them.
  features::RowBlock rows(const std::vector<RowSize>& sizes, std::uint64_t seed) const {
    const CounterRng rng(seed, RngStream::kTest);
    features::RowBlock block;
    block.rows = static_cast<std::int64_t>(sizes.size());
    block.history_offsets = block.candidate_offsets = {0};
    for (const auto& s : sizes) {
      block.history_offsets.push_back(block.history_offsets.back() + s.history);
      block.candidate_offsets.push_back(block.candidate_offsets.back() + s.candidates);
    }
    for (std::size_t c = 0; c < schema->columns().size(); ++c) {
      const auto& column = schema->columns()[c];
      const std::int64_t n = column.shape == features::Shape::kScalar ? block.rows
                             : column.shape == features::Shape::kHistoryList
                                 ? block.history_offsets.back()
                                 : block.candidate_offsets.back();
      auto& values = block.columns.emplace_back();
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        if (column.element == features::Element::kFloat) {
          values.floats.push_back(static_cast<float>(10.0 * rng.uniform(c, at)));
        } else {
          values.ints.push_back(static_cast<std::int64_t>(rng.below(16, c, at)));
        }
      }
    }
    return block;
  }

  // The given rows of a block in this order.
  features::Batch cut(const features::RowBlock& block,
                      const std::vector<std::int64_t>& which) const {
    features::Batch batch(*batch_layout);
    features::BatchCutter cutter(*schema, *batch_layout);
    cutter.begin(batch);
    for (const auto row : which) EXPECT_TRUE(cutter.append(block, row));
    return batch;
  }
  features::Batch cut(const features::RowBlock& block) const {
    std::vector<std::int64_t> all;
    for (std::int64_t r = 0; r < block.rows; ++r) all.push_back(r);
    return cut(block, all);
  }
};

// Weights that are nowhere special: scales differ from one and tables are not small.
struct TestWeights {
  std::vector<float> dense, table;

  TestWeights(const World& world, std::uint64_t seed)
      : dense(static_cast<std::size_t>(world.layout->size())),
        table(static_cast<std::size_t>(world.schema->table_rows() * world.config.table_width)) {
    initialize(*world.layout, seed, dense);
    initialize_table(seed, world.config.table_width, table);
    const CounterRng rng(seed, RngStream::kTest);
    for (const auto& spec : world.layout->specs()) {
      for (std::int64_t i = spec.offset; i < spec.offset + spec.count; ++i) {
        auto& v = dense[static_cast<std::size_t>(i)];
        if (spec.init.empty())
          v *= static_cast<float>(
              0.5 + rng.uniform(std::uint64_t{1} << 40, static_cast<std::uint64_t>(i)));
        if (spec.name == "head.weight") v *= 4.0F;
      }
    }
  }
  Weights view() const { return {dense, table}; }
};

inline ::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  return ops::testing::same_bits<float>(a, b);
}

// One forward, loss and backward with a ranker of its own.
struct Step {
  std::vector<float> logits, d_dense, d_rows;
  std::vector<std::int32_t> lookups;
  std::vector<double> by_output;
  double loss = 0.0;
};

inline Step run_step(const World& world, const Weights& weights, const features::Batch& batch,
                     int threads = 1) {
  pipeline::TaskPool pool(threads);
  ops::Context ctx(pool);
  Ranker ranker(world.config, *world.schema, world.limits, ops::cpu_ops(), true);
  Step s;
  const auto logits = ranker.forward(ctx, weights, batch);
  s.logits.assign(logits.begin(), logits.end());
  s.by_output.resize(static_cast<std::size_t>(ranker.outputs()));
  s.loss = ranker.loss(ctx, batch, s.by_output);
  // Overwritten, whatever was there before.
  s.d_dense.assign(weights.dense.size(), 777.0F);
  s.lookups.assign(ranker.lookups().begin(), ranker.lookups().end());
  s.d_rows.assign(s.lookups.size() * static_cast<std::size_t>(world.config.table_width), 777.0F);
  ranker.backward(ctx, weights, batch, {s.d_dense, s.d_rows});
  return s;
}

inline std::vector<float> infer(const World& world, const Weights& weights,
                                const features::Batch& batch, int threads = 1) {
  pipeline::TaskPool pool(threads);
  ops::Context ctx(pool);
  Ranker ranker(world.config, *world.schema, world.limits, ops::cpu_ops(), false);
  const auto logits = ranker.forward(ctx, weights, batch);
  return {logits.begin(), logits.end()};
}

}  // namespace paceline::model::testing
