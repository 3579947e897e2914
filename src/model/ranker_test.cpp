// Forward, loss and every gradient against the fp64 reference.
#include "model/ranker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/model_testing.hpp"
#include "model/ranker_ref.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::model {
namespace {

using testing::RowSize;
using testing::Step;
using testing::TestWeights;
using testing::World;

constexpr const char* kSmall =
    "width = 24\nquery_heads = 2\nkey_heads = 1\nhead_dim = 8\nffn = 40\ntable_width = 6\n";

struct Case {
  const char* name;
  std::string model;
  std::string features;
  std::vector<RowSize> rows;
};

std::string all_features() {
  return std::string(testing::kUserFeature) + testing::kItemFeatures + testing::kActions;
}

std::vector<Case> cases() {
  const std::string items = testing::kItemFeatures;
  const std::string actions = testing::kActions;
  const std::string prefixes = std::string(testing::kUserFeature) + testing::kProfileFeatures;
  const std::vector<RowSize> rows = {{3, 2}, {12, 5}, {7, 1}};
  return {
      {"two_layers", kSmall + std::string("layers = 2\n"), all_features(), rows},
      {"one_layer", kSmall + std::string("layers = 1\n"), all_features(), rows},
      {"three_layers", kSmall + std::string("layers = 3\n"), all_features(), rows},
      {"grouped_causal_tanh_cap",
       "width = 20\nlayers = 2\nquery_heads = 4\nkey_heads = 2\nhead_dim = 8\nffn = 17\n"
       "table_width = 5\ncausal = true\ncap_kind = \"tanh\"\ncap = 1.5\n",
       all_features(), rows},
      {"no_prefix_soft_sign_cap",
       kSmall + std::string("layers = 2\ncap_kind = \"soft_sign\"\ncap = 1.0\n"), items + actions,
       rows},
      {"two_prefix_tokens_and_targets", kSmall + std::string("layers = 2\nrope_base = 100.0\n"),
       prefixes + items + actions + testing::kTargets, rows},
      {"targets_alone", kSmall + std::string("layers = 1\n"),
       std::string(testing::kUserFeature) + items + testing::kTargets, rows},
      {"ungrouped_heads_wider_than_the_model",
       "width = 12\nlayers = 2\nquery_heads = 3\nkey_heads = 3\nhead_dim = 16\nffn = 8\n"
       "table_width = 4\n",
       all_features(), rows},
      {"some_histories_empty",
       kSmall + std::string("layers = 2\n"),
       all_features(),
       {{0, 3}, {4, 2}, {0, 1}}},
      {"all_histories_empty",
       kSmall + std::string("layers = 2\n"),
       all_features(),
       {{0, 3}, {0, 2}}},
      {"nothing_but_candidates",
       kSmall + std::string("layers = 2\n"),
       items + actions,
       {{0, 3}, {0, 1}}},
      {"an_example_without_candidates",
       kSmall + std::string("layers = 2\n"),
       all_features(),
       {{5, 0}, {4, 2}, {2, 0}}},
      {"history_without_features",
       kSmall + std::string("layers = 2\n"),
       std::string(testing::kUserFeature) +
           "[[features]]\nname = \"item\"\nscope = \"candidate\"\nkind = \"id\"\n"
           "column = \"candidate_item\"\nrows = 9\nhashes = 2\n" +
           actions,
       {{4, 2}, {0, 3}}},
  };
}

class RankerNumerics : public ::testing::TestWithParam<Case> {
 protected:
  World world_ = World::make("[model]\n" + GetParam().model + GetParam().features);
  TestWeights weights_{world_, 11};
  features::RowBlock block_ = world_.rows(GetParam().rows, 21);
  features::Batch batch_ = world_.cut(block_);

  // The weights in the reference's type; each lookup's row on its own.
  template <typename T>
  ref::Model<T> reference(bool leaves) const {
    ref::Model<T> m(world_.config, *world_.schema, *world_.layout);
    const auto make = [leaves](float v) {
      if constexpr (std::is_floating_point_v<T>) {
        static_cast<void>(leaves);
        return static_cast<T>(v);
      } else {
        using F = decltype(T{}.value);
        return leaves ? T::leaf(static_cast<F>(v)) : T(static_cast<F>(v));
      }
    };
    for (const float v : weights_.dense) m.dense.push_back(make(v));
    const auto width = static_cast<std::size_t>(world_.config.table_width);
    for (const auto row : m.lookups(batch_)) {
      for (std::size_t i = 0; i < width; ++i) {
        m.rows.push_back(row < 0 ? T(0)
                                 : make(weights_.table[static_cast<std::size_t>(row) * width + i]));
      }
    }
    return m;
  }

  template <typename F>
  struct Gradients {
    std::vector<F> dense, rows;
    double loss = 0.0;
  };
  template <typename F>
  Gradients<F> gradients() const {
    auto& tape = ref::Tape<F>::current();
    tape.nodes.clear();
    const auto m = reference<ref::Var<F>>(true);
    const auto loss = m.loss(batch_);
    const auto g = tape.gradient(loss.node);
    Gradients<F> out;
    const auto of = [&](const ref::Var<F>& v) {
      return v.node < 0 ? F{0} : g[static_cast<std::size_t>(v.node)];
    };
    for (const auto& v : m.dense) out.dense.push_back(of(v));
    for (const auto& v : m.rows) out.rows.push_back(of(v));
    out.loss = loss.value;
    tape.nodes.clear();
    return out;
  }
};

// Several ops in a row: more roundings than one op has.
constexpr ops::testing::Tolerance kTolerance{.k = 2.0, .noise_ulps = 16.0, .relative_l2 = 1e-5};

TEST_P(RankerNumerics, LogitsAndLossAreThoseOfTheReference) {
  const Step step = testing::run_step(world_, weights_.view(), batch_);
  const auto exact = reference<double>(false);
  const auto naive = reference<float>(false);
  EXPECT_EQ(step.lookups, exact.lookups(batch_));
  EXPECT_TRUE(ops::testing::near_reference(step.logits, exact.logits(batch_), naive.logits(batch_),
                                           kTolerance));
  const double loss = exact.loss(batch_);
  EXPECT_NEAR(step.loss, loss, 1e-5 * std::abs(loss));
  double sum = 0.0;
  for (const double part : step.by_output) sum += part;
  EXPECT_NEAR(sum, step.loss, 1e-12 * std::abs(loss));
}

TEST_P(RankerNumerics, GradientsAreThoseOfTheReference) {
  const Step step = testing::run_step(world_, weights_.view(), batch_);
  const auto exact = gradients<double>();
  const auto naive = gradients<float>();
  for (const auto& spec : world_.layout->specs()) {
    const auto at = static_cast<std::size_t>(spec.offset);
    const auto n = static_cast<std::size_t>(spec.count);
    EXPECT_TRUE(ops::testing::near_reference(std::span(step.d_dense).subspan(at, n),
                                             std::span(exact.dense).subspan(at, n),
                                             std::span(naive.dense).subspan(at, n), kTolerance))
        << spec.name;
  }
  EXPECT_TRUE(ops::testing::near_reference(step.d_rows, exact.rows, naive.rows, kTolerance));
  // The gaps between tensors stay zero.
  std::vector<float> gaps = step.d_dense;
  for (const auto& spec : world_.layout->specs()) {
    std::fill_n(gaps.begin() + spec.offset, spec.count, 0.0F);
  }
  EXPECT_TRUE(std::all_of(gaps.begin(), gaps.end(), [](float v) { return v == 0.0F; }));
}

TEST_P(RankerNumerics, ReferenceGradientsAreCentralDifferences) {
  const auto exact = gradients<double>();
  auto m = reference<double>(false);
  constexpr double kStep = 1e-5;
  const auto check = [&](const std::string& what, double& parameter, double want, double largest) {
    const double before = parameter;
    parameter = before + kStep;
    const double up = m.loss(batch_);
    parameter = before - kStep;
    const double down = m.loss(batch_);
    parameter = before;
    EXPECT_NEAR((up - down) / (2 * kStep), want, 1e-6 * largest + 1e-9) << what;
  };
  for (const auto& spec : world_.layout->specs()) {
    const auto begin = exact.dense.begin() + spec.offset;
    double largest = 0.0;
    for (auto it = begin; it != begin + spec.count; ++it)
      largest = std::max(largest, std::abs(*it));
    const auto i = static_cast<std::size_t>(spec.offset + spec.count / 3);
    check(spec.name, m.dense[i], exact.dense[i], largest);
  }
  if (m.rows.empty()) return;
  const auto lookups = m.lookups(batch_);
  std::size_t last = lookups.size() - 1;
  while (last > 0 && lookups[last] < 0) --last;
  const std::size_t i = last * static_cast<std::size_t>(world_.config.table_width) + 1;
  check("table row", m.rows[i], exact.rows[i], std::abs(exact.rows[i]));
}

INSTANTIATE_TEST_SUITE_P(Models, RankerNumerics, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Ranker, ActivatesEachOutputByItsLoss) {
  const World world = World::make("[model]\n" + (kSmall + all_features()) + testing::kTargets);
  const features::Schema& schema = *world.schema;
  for (int action = 0; action < 3; ++action) {
    EXPECT_FLOAT_EQ(activate(schema, action, 0.0F), 0.5F);
    EXPECT_FLOAT_EQ(activate(schema, action, 2.0F), 1.0F / (1.0F + std::exp(-2.0F)));
    EXPECT_EQ(activate(schema, action, 200.0F), 1.0F);
    EXPECT_EQ(activate(schema, action, -200.0F), 0.0F);
  }
  EXPECT_FLOAT_EQ(activate(schema, 3, 0.0F), 15.0F);
  EXPECT_FLOAT_EQ(activate(schema, 3, 100.0F), 30.0F);
  EXPECT_FLOAT_EQ(activate(schema, 4, 1.0F), 8.0F * std::tanh(std::log1p(std::exp(1.0F)) / 8.0F));
  EXPECT_FLOAT_EQ(activate(schema, 4, 1000.0F), 8.0F);
  EXPECT_FLOAT_EQ(activate(schema, 4, -1000.0F), 1e-6F);
}

}  // namespace
}  // namespace paceline::model
