// Steps on the GPU: those of the CPU within rounding, and the same bits however they are put there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/rng.hpp"
#include "device/stream.hpp"
#include "device/testing/gpu_test.hpp"
#include "model/model_testing.hpp"
#include "train/step_engine.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace {

namespace mt = model::testing;

constexpr const char* kSizes = R"(
[run]
dir = "run"
[batch]
examples = 8
history_len = 12
candidates = 5
[optimizer]
lr = 0.01
weight_decay = 0.1
[model]
width = 64
layers = 2
query_heads = 2
key_heads = 1
head_dim = 64
ffn = 96
table_width = 8
)";

TrainConfig config_of(const std::vector<std::string>& sets = {}) {
  auto read = Config::parse(std::string(kSizes) + mt::kUserFeature + mt::kProfileFeatures +
                                mt::kItemFeatures + mt::kActions + mt::kTargets,
                            "test.toml");
  PL_CHECK(read.ok(), read.error().text());
  for (const auto& set : sets) PL_CHECK(read->override_with(set).ok(), set);
  auto config = TrainConfig::from_config(*read);
  PL_CHECK(config.ok(), config.error().text());
  return std::move(*config);
}

// A model, an engine on it, and what its steps gave.
class TestRun {
 public:
  TestRun(TrainConfig c, const DeviceChoice& device)
      : config(std::move(c)),
        layout(config.model, config.schema),
        pool(2),
        ctx(pool),
        state(layout.size(), config.schema.table_rows(), config.model.table_width),
        device_(device) {
    model::initialize(layout, 5, state.dense());
    model::initialize_table(5, config.model.table_width, state.table());
  }
  void begin(const ops::LinearAlgorithms& known = {},
             std::function<void(const device::Stream&)> before_work = {}) {
    const SaveHooks hooks{[] { return Result<void>(); },
                          [this](std::span<const std::int32_t> rows) {
                            touched.insert(touched.end(), rows.begin(), rows.end());
                          }};
    auto made = make_step_engine(
        {config, layout, state, ctx, device_, hooks, known, std::move(before_work)});
    PL_CHECK(made.ok(), made.error().text());
    engine = std::move(*made);
  }
  void step(const features::Batch& batch, int lag = 1) {
    const auto submitted = engine->submit(batch, 0.5);
    PL_CHECK(submitted.ok(), "a step of a test");
    ++under_way_;
    settle(lag);
  }
  void settle(int left = 0) {
    for (; under_way_ > left; --under_way_) {
      const StepResult result = engine->take();
      losses.push_back(static_cast<float>(result.loss));
      norms.push_back(static_cast<float>(result.outcome.grad_norm));
      applied += result.outcome.applied ? 1 : 0;
    }
  }
  void end() {
    settle();
    PL_CHECK(engine->to_host().ok(), "a copy of a test");
  }

  TrainConfig config;
  model::ParameterLayout layout;
  pipeline::TaskPool pool;
  ops::Context ctx;
  ModelState state;
  std::unique_ptr<StepEngine> engine;
  std::vector<float> losses, norms;
  std::vector<std::int32_t> touched;
  int applied = 0;

 private:
  DeviceChoice device_;
  int under_way_ = 0;
};

void expect_same_bits(TestRun& a, TestRun& b) {
  EXPECT_TRUE(mt::same_bits(a.losses, b.losses));
  EXPECT_TRUE(mt::same_bits(a.norms, b.norms));
  EXPECT_TRUE(mt::same_bits(a.state.dense(), b.state.dense()));
  EXPECT_TRUE(mt::same_bits(a.state.adam_m(), b.state.adam_m()));
  EXPECT_TRUE(mt::same_bits(a.state.adam_v(), b.state.adam_v()));
  EXPECT_TRUE(mt::same_bits(a.state.table(), b.state.table()));
  EXPECT_TRUE(mt::same_bits(a.state.table_acc(), b.state.table_acc()));
  EXPECT_EQ(a.state.adam_steps, b.state.adam_steps);
}

// |a - b| against |b|.
double distance(std::span<const float> a, std::span<const float> b) {
  double off = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(off) / (std::sqrt(size) + 1e-6);
}

class GpuEngine : public device::testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto chosen = choose_device(config_of({"train.device=cuda"}).loop);
    ASSERT_TRUE(chosen.ok()) << chosen.error().text();
    bf16_ = fp32_ = *chosen;
    bf16_.bf16 = true;
    fp32_.bf16 = false;
    const TrainConfig config = config_of();
    const mt::World world =
        mt::World::make(std::string("[model]\nwidth = 64\nhead_dim = 64\n") + mt::kUserFeature +
                            mt::kProfileFeatures + mt::kItemFeatures + mt::kActions + mt::kTargets,
                        config.limits);
    layout_ = std::make_unique<features::BatchLayout>(config.schema, config.limits);
    // Few ids: every batch looks up rows of the one before.
    for (std::uint64_t b = 0; b < 12; ++b) {
      const CounterRng rng(b, RngStream::kTest);
      std::vector<mt::RowSize> sizes;
      for (std::uint64_t e = 0; e < 1 + b % 8; ++e) {
        sizes.push_back(
            {static_cast<int>(rng.below(13, 1, e)), static_cast<int>(rng.below(6, 2, e))});
      }
      const auto block = world.rows(sizes, b);
      features::Batch batch(*layout_);
      features::BatchCutter cutter(config.schema, *layout_);
      cutter.begin(batch);
      for (std::int64_t r = 0; r < block.rows; ++r) ASSERT_TRUE(cutter.append(block, r));
      batches_.push_back(std::move(batch));
    }
  }

  std::unique_ptr<TestRun> trained(const DeviceChoice& device,
                                   const std::vector<std::string>& sets = {}, int lag = 1) {
    auto run = std::make_unique<TestRun>(config_of(sets), device);
    run->begin();
    for (const auto& batch : batches_) run->step(batch, lag);
    run->end();
    return run;
  }

  DeviceChoice bf16_, fp32_;
  std::unique_ptr<features::BatchLayout> layout_;
  std::vector<features::Batch> batches_;
};

TEST_F(GpuEngine, Fp32StepsAreThoseOfTheCpu) {
  const auto gpu = trained(fp32_), cpu = trained(DeviceChoice{}, {}, 0);
  EXPECT_EQ(gpu->applied, 12);
  EXPECT_EQ(gpu->state.adam_steps, cpu->state.adam_steps);
  EXPECT_LT(distance(gpu->losses, cpu->losses), 1e-3);
  EXPECT_LT(distance(gpu->norms, cpu->norms), 1e-2);
  EXPECT_LT(distance(gpu->state.dense(), cpu->state.dense()), 1e-2);
  EXPECT_LT(distance(gpu->state.table(), cpu->state.table()), 1e-2);
  EXPECT_LT(distance(gpu->state.table_acc(), cpu->state.table_acc()), 1e-2);
}

TEST_F(GpuEngine, Bf16LossesAreNearThoseOfTheCpu) {
  const auto gpu = trained(bf16_), cpu = trained(DeviceChoice{}, {}, 0);
  EXPECT_EQ(gpu->applied, 12);
  EXPECT_LT(distance(gpu->losses, cpu->losses), 0.05);
}

TEST_F(GpuEngine, GraphsAndStepsUnderWayChangeNoBit) {
  const auto want = trained(bf16_);
  for (const char* graph : {"train.graph=on", "train.graph=off"}) {
    for (const int lag : {0, 1}) {
      auto run = std::make_unique<TestRun>(config_of({graph}), bf16_);
      run->begin(want->engine->algorithms());
      for (const auto& batch : batches_) run->step(batch, lag);
      run->end();
      expect_same_bits(*run, *want);
    }
  }
}

TEST_F(GpuEngine, DelaysOnEitherStreamChangeNoBit) {
  const auto want = trained(bf16_);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const CounterRng rng(seed, RngStream::kTest);
    std::uint64_t calls = 0;
    auto run = std::make_unique<TestRun>(config_of(), bf16_);
    run->begin(want->engine->algorithms(), [&](const device::Stream& stream) {
      if (rng.below(2, 1, calls) == 0) {
        device::delay(stream, static_cast<int>(rng.below(3000, 2, calls)));
      }
      ++calls;
    });
    for (const auto& batch : batches_) run->step(batch);
    run->end();
    EXPECT_EQ(calls, 2 * batches_.size());
    expect_same_bits(*run, *want);
  }
}

TEST_F(GpuEngine, AStateThatWentOverTheHostGoesOnWithTheSameBits) {
  const auto want = trained(bf16_);
  auto first = std::make_unique<TestRun>(config_of(), bf16_);
  first->begin(want->engine->algorithms());
  for (std::size_t b = 0; b < 5; ++b) first->step(batches_[b]);
  first->end();
  first->begin(want->engine->algorithms());
  for (std::size_t b = 5; b < batches_.size(); ++b) first->step(batches_[b]);
  first->end();
  expect_same_bits(*first, *want);
}

TEST_F(GpuEngine, ScoresBetweenStepsAreThoseOfTheWeightsAndChangeNone) {
  const auto want = trained(fp32_);
  auto run = std::make_unique<TestRun>(config_of(), fp32_);
  run->begin(want->engine->algorithms());
  for (const auto& batch : batches_) {
    run->step(batch);
    const auto scores = run->engine->score(batches_[3]);
    const std::vector<float> got(scores.begin(), scores.end());
    run->settle();
    ASSERT_TRUE(run->engine->to_host().ok());
    const ModelState& state = run->state;
    model::Ranker cpu(run->config.model, run->config.schema, run->config.limits, ops::cpu_ops(),
                      false);
    const auto on_cpu = cpu.forward(run->ctx, {state.dense(), state.table()}, batches_[3]);
    ASSERT_EQ(got.size(), on_cpu.size());
    EXPECT_LT(distance(got, on_cpu), 1e-3);
    // An own scorer of those weights.
    auto scorer = make_scorer(
        {run->config.model, run->config.schema, run->config.limits, state, run->ctx, fp32_});
    ASSERT_TRUE(scorer.ok()) << scorer.error().text();
    EXPECT_LT(distance((*scorer)->score(batches_[3]), on_cpu), 1e-3);
  }
  run->end();
  expect_same_bits(*run, *want);
}

TEST_F(GpuEngine, WhatIsNotFiniteIsSkippedAndChangesNothing) {
  for (const DeviceChoice& device : {bf16_, fp32_}) {
    auto run = std::make_unique<TestRun>(config_of(), device);
    auto before = std::make_unique<TestRun>(config_of(), device);
    for (TestRun* r : {run.get(), before.get()}) {
      r->state.dense()[static_cast<std::size_t>(r->layout.find("head.weight").offset)] =
          std::numeric_limits<float>::quiet_NaN();
    }
    run->begin();
    for (const auto& batch : batches_) run->step(batch);
    run->end();
    EXPECT_EQ(run->applied, 0);
    EXPECT_EQ(run->state.adam_steps, 0);
    EXPECT_TRUE(mt::same_bits(run->state.dense(), before->state.dense()));
    EXPECT_TRUE(mt::same_bits(run->state.table(), before->state.table()));
    EXPECT_TRUE(mt::same_bits(run->state.table_acc(), before->state.table_acc()));
  }
}

TEST_F(GpuEngine, TableRowsAreToldToSavesOfDifferences) {
  auto run = std::make_unique<TestRun>(config_of({"checkpoint.table_deltas=3"}), bf16_);
  auto cpu = std::make_unique<TestRun>(config_of({"checkpoint.table_deltas=3"}), DeviceChoice{});
  for (TestRun* r : {run.get(), cpu.get()}) {
    r->begin();
    for (const auto& batch : batches_) r->step(batch, 0);
    std::sort(r->touched.begin(), r->touched.end());
    r->touched.erase(std::unique(r->touched.begin(), r->touched.end()), r->touched.end());
  }
  EXPECT_FALSE(cpu->touched.empty());
  EXPECT_EQ(run->touched, cpu->touched);
}

}  // namespace
}  // namespace paceline::train
