// The GPU ranker against the CPU's, which is tested against the fp64 reference.
#include "model/ranker_cuda.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "device/testing/gpu_test.hpp"
#include "model/model_testing.hpp"
#include "ops/testing/gpu_values.hpp"

namespace paceline::model {
namespace {

using device::BFloat16;
using device::testing::DeviceArray;
using testing::RowSize;
using testing::Step;
using testing::TestWeights;
using testing::World;

struct Case {
  const char* name;
  std::string model;
  std::string features;
  std::vector<RowSize> rows;
};

std::vector<Case> cases() {
  const std::string small =
      "width = 64\nquery_heads = 2\nkey_heads = 1\nhead_dim = 64\nffn = 96\ntable_width = 8\n";
  const std::string items = std::string(testing::kItemFeatures) + testing::kActions;
  const std::string user = testing::kUserFeature;
  const std::string all = user + testing::kProfileFeatures + items + testing::kTargets;
  const std::vector<RowSize> rows = {{3, 2}, {12, 5}, {7, 1}};
  return {
      {"one_layer", small + "layers = 1\n", user + items, rows},
      {"two_layers", small + "layers = 2\n", user + items, rows},
      {"three_layers_and_all_features", small + "layers = 3\n", all, rows},
      {"wide_heads_causal_capped",
       "width = 128\nlayers = 2\nquery_heads = 4\nkey_heads = 2\nhead_dim = 128\nffn = 256\n"
       "table_width = 32\ncausal = true\ncap_kind = \"tanh\"\ncap = 1.5\n",
       all, rows},
      {"table_rows_of_odd_width",
       "width = 64\nlayers = 2\nquery_heads = 1\nkey_heads = 1\nhead_dim = 64\nffn = 64\n"
       "table_width = 5\n",
       user + items, rows},
      {"histories_empty", small + "layers = 2\n", user + items, {{0, 3}, {0, 2}}},
      {"without_candidates", small + "layers = 2\n", user + items, {{4, 0}}},
      {"no_example", small + "layers = 2\n", user + items, {}},
      {"every_row_full", small + "layers = 2\n", user + items,
       std::vector<RowSize>(8, RowSize{12, 5})},
  };
}

// What the GPU makes of one batch.
struct GpuStep {
  std::vector<float> logits, d_dense, d_table;
  double loss = 0.0;
};

template <typename T>
class OnGpu {
 public:
  OnGpu(const World& world, const TestWeights& weights, const ops::LinearAlgorithms& known = {})
      : world_(world),
        dense_(weights.dense),
        shadow_(ops::testing::all_as<T>(weights.dense)),
        table_(weights.table),
        d_dense_(std::vector<float>(weights.dense.size(), 0.0F)) {
    auto made =
        RankerCuda<T>::create(world.config, *world.schema, world.limits, "test", 2, true, known);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().text());
    if (made) ranker_ = std::move(*made);
  }

  GpuStep run(const features::Batch& batch, int slot = 0) {
    const device::Stream stream("test");
    std::vector<std::byte> staged(ranker_->slot_bytes());
    ranker_->stage(batch, 1.0, staged.data());
    device::copy_to_device(stream, ranker_->slot_data(slot), staged.data(), staged.size());
    const WeightsCuda<T> weights{dense_.data(), shadow_.data(), table_.data()};
    ranker_->forward(stream, weights, slot);
    ranker_->loss(stream, slot);
    ranker_->backward(stream, weights, slot, d_dense_.data());
    const GpuStep step = read(stream, batch, slot);
    return step;
  }
  RankerCuda<T>& ranker() { return *ranker_; }

 private:
  GpuStep read(const device::Stream& stream, const features::Batch& batch, int slot) {
    GpuStep step;
    const auto candidates = static_cast<std::size_t>(batch.candidate_tokens());
    const auto stride = static_cast<std::size_t>(ranker_->logit_stride());
    std::vector<float> head(candidates * stride);
    device::copy_to_host(stream, head.data(), ranker_->logits(), head.size() * sizeof(float));
    device::copy_to_host(stream, &step.loss, ranker_->loss_value(), sizeof(double));
    // Summed gradients of the rows looked up.
    const std::int64_t rows = world_.schema->table_rows();
    const int width = world_.config.table_width;
    device::Arena counting;
    const auto place = [&](device::Arena& arena) {
      const auto index =
          ops::place_table_index(arena, ranker_->table_places(), static_cast<std::int32_t>(rows));
      return std::pair(index, ops::place_table_sums(arena, index, width));
    };
    place(counting);
    auto memory = device::Memory::create(counting.used(), "a test's sums");
    EXPECT_TRUE(memory.ok());
    device::Arena arena(*memory);
    const auto [index, sums] = place(arena);
    const auto sources = ranker_->table_sources(slot);
    ops::table_index_cuda(stream, sources, index);
    ops::table_reduce_cuda<T>(stream, {sources, index, sums});
    std::int32_t unique = 0;
    device::copy_to_host(stream, &unique, index.unique, sizeof(unique));
    stream.synchronize();
    std::vector<std::int32_t> which(static_cast<std::size_t>(unique));
    std::vector<float> g(which.size() * static_cast<std::size_t>(width));
    device::copy_to_host(stream, which.data(), index.rows, which.size() * sizeof(std::int32_t));
    device::copy_to_host(stream, g.data(), sums.g, g.size() * sizeof(float));
    stream.synchronize();
    step.d_table.resize(static_cast<std::size_t>(rows * width));
    for (std::size_t u = 0; u < which.size(); ++u) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
        step.d_table[static_cast<std::size_t>(which[u] * width) + i] =
            g[u * static_cast<std::size_t>(width) + i];
      }
    }
    step.d_dense = d_dense_.read();
    const auto outputs = static_cast<std::size_t>(ranker_->outputs());
    const std::size_t actions = world_.schema->actions().size();
    for (std::size_t c = 0; c < candidates; ++c) {
      for (std::size_t o = 0; o < outputs; ++o) {
        step.logits.push_back(head[c * stride + o] *
                              (o < actions ? ranker_->action_scale() : 1.0F));
      }
    }
    return step;
  }

  const World& world_;
  DeviceArray<float> dense_;
  DeviceArray<T> shadow_;
  DeviceArray<float> table_;
  DeviceArray<float> d_dense_;
  std::unique_ptr<RankerCuda<T>> ranker_;
};

// |a - b| against the size of b.
double distance(std::span<const float> a, std::span<const float> b) {
  double off = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(off) / (std::sqrt(size) + 1e-6);
}

std::vector<float> table_gradient(const World& world, const Step& step) {
  const auto width = static_cast<std::size_t>(world.config.table_width);
  std::vector<float> sum(static_cast<std::size_t>(world.schema->table_rows()) * width);
  for (std::size_t i = 0; i < step.lookups.size(); ++i) {
    if (step.lookups[i] < 0) continue;
    for (std::size_t j = 0; j < width; ++j) {
      sum[static_cast<std::size_t>(step.lookups[i]) * width + j] += step.d_rows[i * width + j];
    }
  }
  return sum;
}

class GpuRanker : public device::testing::GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  World world_ = World::make("[model]\n" + GetParam().model + GetParam().features);
  TestWeights weights_{world_, 11};
  features::Batch batch_ = world_.cut(world_.rows(GetParam().rows, 21));

  template <typename T>
  void check(double allowed) {
    const Step want = testing::run_step(world_, weights_.view(), batch_);
    OnGpu<T> gpu(world_, weights_);
    const GpuStep got = gpu.run(batch_);
    ASSERT_EQ(got.logits.size(), want.logits.size());
    EXPECT_LT(distance(got.logits, want.logits), allowed);
    EXPECT_NEAR(got.loss, want.loss, allowed * (std::abs(want.loss) + 1e-3));
    for (const auto& spec : world_.layout->specs()) {
      const auto at = static_cast<std::size_t>(spec.offset);
      const auto n = static_cast<std::size_t>(spec.count);
      EXPECT_LT(
          distance(std::span(got.d_dense).subspan(at, n), std::span(want.d_dense).subspan(at, n)),
          allowed)
          << spec.name;
    }
    EXPECT_LT(distance(got.d_table, table_gradient(world_, want)), allowed);
  }
};

TEST_P(GpuRanker, FloatIsThatOfTheCpu) { check<float>(1e-4); }
TEST_P(GpuRanker, BFloat16IsNearThatOfTheCpu) { check<BFloat16>(0.06); }

// A larger batch before, and the other slot, leave nothing behind.
TEST_P(GpuRanker, BitsDoNotDependOnWhatWasBefore) {
  const auto full = world_.cut(world_.rows(std::vector<RowSize>(8, RowSize{12, 5}), 31));
  OnGpu<BFloat16> fresh(world_, weights_), used(world_, weights_);
  const GpuStep want = fresh.run(batch_, 0);
  used.run(full, 0);
  used.run(full, 1);
  const GpuStep got = used.run(batch_, 1);
  EXPECT_TRUE(testing::same_bits(got.logits, want.logits));
  EXPECT_TRUE(testing::same_bits(got.d_dense, want.d_dense));
  EXPECT_TRUE(testing::same_bits(got.d_table, want.d_table));
  EXPECT_EQ(got.loss, want.loss);
}

// The step that measures, later ones, and a process that is given what was kept.
TEST_P(GpuRanker, MeasuringProductsChangesNoResult) {
  OnGpu<BFloat16> first(world_, weights_);
  first.ranker().set_tuning(4);
  const GpuStep measured = first.run(batch_);
  first.ranker().set_tuning(0);
  OnGpu<BFloat16> resumed(world_, weights_, first.ranker().algorithms());
  for (const GpuStep& later : {first.run(batch_), resumed.run(batch_)}) {
    EXPECT_TRUE(testing::same_bits(later.logits, measured.logits));
    EXPECT_TRUE(testing::same_bits(later.d_dense, measured.d_dense));
    EXPECT_TRUE(testing::same_bits(later.d_table, measured.d_table));
    EXPECT_EQ(later.loss, measured.loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuRanker, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

class GpuRankerRefusals : public device::testing::GpuTest {};

TEST_F(GpuRankerRefusals, SizesThatTheGpuCodeDoesNotTakeAreNamed) {
  const std::string features =
      std::string(testing::kUserFeature) + testing::kItemFeatures + testing::kActions;
  const auto refusal = [&](const std::string& model) {
    const World world = World::make("[model]\n" + model + features);
    const auto made = RankerCuda<BFloat16>::create(world.config, *world.schema, world.limits,
                                                   "test", 1, true, {});
    return made ? std::string("none") : made.error().text();
  };
  EXPECT_NE(refusal("width = 20\nhead_dim = 64\n").find("model.width = 20"), std::string::npos);
  EXPECT_NE(refusal("width = 64\nhead_dim = 64\nffn = 17\n").find("model.ffn = 17"),
            std::string::npos);
  EXPECT_NE(refusal("width = 64\nhead_dim = 32\n").find("model.head_dim = 32"), std::string::npos);
}

}  // namespace
}  // namespace paceline::model
