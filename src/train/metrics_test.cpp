#include "train/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "core/rng.hpp"
#include "train/metrics_auc.hpp"

namespace paceline::train {
namespace {

struct Golden {
  const char* name;
  int ndcg_k;
  std::vector<std::int64_t> user;    // [examples]
  std::vector<std::uint32_t> owner;  // [candidates] example, ascending
  std::vector<float> logit;          // [candidates]
  std::vector<std::uint8_t> label;   // [candidates]
  std::vector<double> values;        // auc, user_auc, ne, calibration, ndcg, log_loss
  std::int64_t users_one_class, examples_without_positive;
};

const std::vector<Golden>& golden() {
  static const std::vector<Golden> all = {
#include "train/metrics_golden.inc"
  };
  return all;
}

MetricsAccumulator accumulate(const Golden& g) {
  MetricsAccumulator a;
  std::size_t c = 0;
  for (std::size_t e = 0; e < g.user.size(); ++e) {
    a.begin_example(g.user[e]);
    for (; c < g.owner.size() && g.owner[c] == e; ++c) a.add(g.logit[c], g.label[c] != 0);
  }
  EXPECT_EQ(c, g.logit.size());
  return a;
}

const Metric* const* members(const MetricsReport& r) {
  static thread_local const Metric* m[6];
  m[0] = &r.auc, m[1] = &r.user_auc, m[2] = &r.ne;
  m[3] = &r.calibration, m[4] = &r.ndcg, m[5] = &r.log_loss;
  return m;
}

TEST(Metrics, AgreeWithScikitLearn) {
  ASSERT_EQ(golden().size(), 5U);
  for (const auto& g : golden()) {
    SCOPED_TRACE(g.name);
    const auto r = accumulate(g).compute({.bootstrap = 0, .ndcg_k = g.ndcg_k});
    for (std::size_t m = 0; m < 6; ++m) {
      ASSERT_TRUE(members(r)[m]->value) << m;
      EXPECT_NEAR(*members(r)[m]->value, g.values[m], 1e-12 * std::max(1.0, g.values[m])) << m;
      EXPECT_FALSE(members(r)[m]->ci) << m;
    }
    EXPECT_EQ(r.users_one_class, g.users_one_class);
    EXPECT_EQ(r.examples_without_positive, g.examples_without_positive);
    EXPECT_EQ(r.candidates, static_cast<std::int64_t>(g.logit.size()));
    EXPECT_EQ(r.examples, static_cast<std::int64_t>(g.user.size()));
    EXPECT_EQ(r.positives, std::count(g.label.begin(), g.label.end(), 1));
  }
}

// The definition: every pair of a positive and a negative.
double auc_by_pairs(const std::vector<float>& s, const std::vector<std::uint8_t>& y) {
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (y[i] == 0 || y[j] != 0) continue;
      pairs += 1;
      right += s[i] > s[j] ? 1.0 : (s[i] == s[j] ? 0.5 : 0.0);
    }
  }
  return right / pairs;
}

TEST(Metrics, AucEqualsThePairwiseDefinition) {
  const CounterRng rng(7, RngStream::kTest);
  for (std::uint64_t round = 0; round < 40; ++round) {
    const std::size_t n = 2 + rng.below(200, round, 1);
    const double grid = round % 2 == 0 ? 1.0 : 1e6;  // many ties, few ties
    std::vector<float> s(n);
    std::vector<std::uint8_t> y(n);
    for (std::size_t i = 0; i < n; ++i) {
      s[i] = static_cast<float>(std::round(rng.normal(round, 1000 + i) * grid) / grid);
      y[i] = rng.below(3, round, 5000 + i) == 0;
    }
    y[0] = 1, y[1] = 0;
    EXPECT_DOUBLE_EQ(exact_auc(s, y).value(), auc_by_pairs(s, y)) << "round " << round;
  }
}

TEST(Metrics, AucOfExtremeScores) {
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(exact_auc({-inf, -1e30F, -tiny, 0.0F, tiny, inf}, {0, 0, 0, 1, 1, 1}), 1.0);
  EXPECT_EQ(exact_auc({-0.0F, 0.0F}, {0, 1}), 0.5);
  EXPECT_EQ(exact_auc({0.0F, -0.0F}, {0, 1}), 0.5);
  EXPECT_EQ(exact_auc({2.0F, 1.0F}, {0, 1}), 0.0);
  EXPECT_EQ(exact_auc({1.0F, 2.0F}, {1, 1}), std::nullopt);
  EXPECT_EQ(exact_auc({1.0F, 2.0F}, {0, 0}), std::nullopt);
  EXPECT_EQ(exact_auc({}, {}), std::nullopt);
}

TEST(Metrics, NdcgByHand) {
  MetricsAccumulator a;
  a.begin_example(1);  // ranks: hit, miss, hit
  a.add(3.0F, true), a.add(2.0F, false), a.add(1.0F, true);
  a.begin_example(2);  // no positive: left out
  a.add(1.0F, false);
  a.begin_example(3);  // a tie of a hit and a miss shares the two ranks
  a.add(1.0F, true), a.add(1.0F, false);
  const auto r = a.compute({.bootstrap = 0});
  const double d2 = 1 / std::log2(3.0), d3 = 0.5;
  EXPECT_DOUBLE_EQ(*r.ndcg.value, 0.5 * ((1 + d3) / (1 + d2) + 0.5 * (1 + d2)));
  EXPECT_EQ(r.examples_without_positive, 1);
}

TEST(Metrics, DoNotDependOnTheOrderOfExamplesOrOfTies) {
  const auto& g = golden()[0];
  MetricsAccumulator backwards;
  std::size_t c = g.logit.size();
  for (std::size_t e = g.user.size(); e-- > 0;) {
    backwards.begin_example(g.user[e]);
    while (c > 0 && g.owner[c - 1] == e) {
      --c;
      backwards.add(g.logit[c], g.label[c] != 0);
    }
  }
  const auto a = accumulate(g).compute({.bootstrap = 0});
  const auto b = backwards.compute({.bootstrap = 0});
  EXPECT_EQ(a.auc.value, b.auc.value);
  for (std::size_t m = 1; m < 6; ++m) {
    EXPECT_NEAR(*members(a)[m]->value, *members(b)[m]->value, 1e-13) << m;
  }
}

// The same resamples made the plain way: every drawn user's examples, copied.
TEST(Metrics, IntervalsEqualResamplingByHand) {
  const auto& g = golden()[3];
  constexpr int kResamples = 21;  // not a multiple of the lanes
  const MetricsOptions options{.bootstrap = kResamples, .seed = 99, .ndcg_k = g.ndcg_k};
  const auto report = accumulate(g).compute(options);
  std::vector<std::int64_t> users;
  for (const auto u : g.user) {
    if (std::find(users.begin(), users.end(), u) == users.end()) users.push_back(u);
  }
  const CounterRng rng(99, RngStream::kBootstrap);
  std::array<std::vector<double>, 6> seen;
  for (std::uint64_t b = 0; b < kResamples; ++b) {
    MetricsAccumulator a;
    for (std::size_t draw = 0; draw < users.size(); ++draw) {
      const auto picked = users[rng.words(draw / 4, b)[draw % 4] * users.size() >> 32];
      for (std::size_t e = 0; e < g.user.size(); ++e) {
        if (g.user[e] != picked) continue;
        a.begin_example(static_cast<std::int64_t>(draw));
        for (std::size_t c = 0; c < g.owner.size(); ++c) {
          if (g.owner[c] == e) a.add(g.logit[c], g.label[c] != 0);
        }
      }
    }
    const auto r = a.compute({.bootstrap = 0, .ndcg_k = g.ndcg_k});
    for (std::size_t m = 0; m < 6; ++m) seen[m].push_back(members(r)[m]->value.value());
  }
  for (std::size_t m = 0; m < 6; ++m) {
    std::sort(seen[m].begin(), seen[m].end());
    ASSERT_TRUE(members(report)[m]->ci) << m;
    // 2.5 % and 97.5 % of 21 values: half way between neighbours at both ends.
    EXPECT_NEAR(members(report)[m]->ci->lo, 0.5 * (seen[m][0] + seen[m][1]), 1e-12) << m;
    EXPECT_NEAR(members(report)[m]->ci->hi, 0.5 * (seen[m][19] + seen[m][20]), 1e-12) << m;
  }
}

TEST(Metrics, IntervalsAreDeterministicAndHoldTheValue) {
  const auto a = accumulate(golden()[1]).compute();
  const auto b = accumulate(golden()[1]).compute();
  const auto other = accumulate(golden()[1]).compute({.seed = 2});
  for (std::size_t m = 0; m < 6; ++m) {
    const auto& ci = members(a)[m]->ci;
    ASSERT_TRUE(ci) << m;
    EXPECT_EQ(ci->lo, members(b)[m]->ci->lo);
    EXPECT_EQ(ci->hi, members(b)[m]->ci->hi);
    EXPECT_NE(ci->lo, members(other)[m]->ci->lo);
    EXPECT_LT(ci->lo, *members(a)[m]->value);
    EXPECT_GT(ci->hi, *members(a)[m]->value);
  }
}

// 95 % intervals of data drawn from a known truth hold the truth about 95 times in 100.
TEST(Metrics, IntervalsCoverTheTruth) {
  const CounterRng rng(3, RngStream::kTest);
  int held = 0;
  constexpr int kWorlds = 200;
  for (std::uint64_t world = 0; world < kWorlds; ++world) {
    MetricsAccumulator a;
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (i % 4 == 0) a.begin_example(static_cast<std::int64_t>(i / 4));
      const bool label = rng.uniform(world, 10 * i) < 0.3;
      a.add(static_cast<float>(rng.normal(world, 10 * i + 1) + (label ? 1.0 : 0.0)), label);
    }
    const auto auc = a.compute({.bootstrap = 100}).auc;
    const double truth = 0.76024993890652;  // Phi(1 / sqrt 2)
    held += auc.ci->lo <= truth && truth <= auc.ci->hi ? 1 : 0;
  }
  EXPECT_GE(held, kWorlds * 88 / 100);
  EXPECT_LT(held, kWorlds);
}

TEST(Metrics, UndefinedValuesAreNull) {
  MetricsAccumulator none;
  auto j = to_json(none.compute(), 5, "test", "like");
  for (const char* m : {"auc", "user_auc", "ne", "calibration", "ndcg", "log_loss"}) {
    EXPECT_TRUE(j.at(m).is_null()) << m;
    EXPECT_TRUE(j.at("ci").at(m).is_null()) << m;
  }
  MetricsAccumulator one_label;
  for (int u = 0; u < 3; ++u) {
    one_label.begin_example(u);
    one_label.add(0.5F, false);
  }
  const auto r = one_label.compute();
  j = to_json(r, 5, "test", "like");
  for (const char* m : {"auc", "user_auc", "ne", "calibration", "ndcg"}) {
    EXPECT_TRUE(j.at(m).is_null()) << m;
  }
  EXPECT_NEAR(j.at("log_loss").get<double>(), std::log1p(std::exp(0.5)), 1e-7);
  EXPECT_EQ(r.users_one_class, 3);
}

TEST(Metrics, OneUserHasNoInterval) {
  MetricsAccumulator a;
  a.begin_example(1);
  a.add(1.0F, true), a.add(0.0F, false);
  const auto r = a.compute();
  EXPECT_EQ(r.auc.value, 1.0);
  EXPECT_FALSE(r.auc.ci);
}

TEST(Metrics, NonFiniteLogitsAreCountedAndLeaveNoValue) {
  MetricsAccumulator a;
  a.begin_example(1);
  a.add(1.0F, true), a.add(std::nanf(""), false);
  a.add(std::numeric_limits<float>::infinity(), false);
  const auto r = a.compute();
  EXPECT_EQ(r.non_finite, 2);
  for (std::size_t m = 0; m < 6; ++m) EXPECT_FALSE(members(r)[m]->value) << m;
}

TEST(Metrics, LogLossOfConfidentMistakesIsFinite) {
  MetricsAccumulator a;
  a.begin_example(1);
  a.add(-500.0F, true), a.add(500.0F, false);
  EXPECT_DOUBLE_EQ(*a.compute().log_loss.value, 500.0);
}

TEST(Metrics, JsonHasTheFieldsOfEvalJsonl) {
  const auto report = accumulate(golden()[0]).compute({.bootstrap = 20});
  const auto j = to_json(report, 1200, "valid", "love");
  EXPECT_EQ(j.at("step"), 1200);
  EXPECT_EQ(j.at("split"), "valid");
  EXPECT_EQ(j.at("action"), "love");
  for (const char* key : {"examples", "candidates", "positives", "users", "users_one_class",
                          "examples_without_positive", "non_finite", "ndcg_k", "bootstrap"}) {
    EXPECT_TRUE(j.at(key).is_number_integer()) << key;
  }
  EXPECT_EQ(nlohmann::json::parse(j.dump()).at("auc").get<double>(), *report.auc.value);
  EXPECT_EQ(j.at("ci").size(), 6U);
  EXPECT_EQ(j.at("ci").at("ne").at(1).get<double>(), report.ne.ci->hi);
}

}  // namespace
}  // namespace paceline::train
