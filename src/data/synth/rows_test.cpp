#include "data/synth/rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace paceline::data::synth {
namespace {

RowColumns draw(const Options& options, std::int64_t first, std::int64_t rows) {
  const World world(options);
  RowDrawer drawer(options, world);
  RowColumns columns;
  columns.clear();
  for (std::int64_t r = 0; r < rows; ++r) drawer.append(first + r, columns);
  return columns;
}

Options short_rows() {
  Options o;
  o.history = {{0, 30, 1.0}};
  return o;
}

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// (observed - expected) / standard deviation of the number of candidates with an action.
double deviation(const RowColumns& c, int action, double low, double high) {
  const auto a = static_cast<std::size_t>(action);
  const int bit = kActionInfos[a].bit;
  double observed = 0.0, expected = 0.0, variance = 0.0;
  for (std::size_t i = 0; i < c.oracle[a].size(); ++i) {
    const double p = static_cast<double>(c.oracle[a][i]);
    if (p < low || p >= high) continue;
    observed += static_cast<double>(static_cast<std::uint64_t>(c.candidate_actions[i]) >> bit & 1);
    expected += p;
    variance += p * (1.0 - p);
  }
  return variance > 0.0 ? (observed - expected) / std::sqrt(variance) : 0.0;
}

TEST(Rows, ActionsHappenWithExactlyTheOracleProbability) {
  Options o = short_rows();
  for (auto& rate : o.rates) rate *= 3.0;  // a sharper test than rare actions
  const auto c = draw(o, 0, 6000);
  for (int a = 0; a < kActions; ++a) {
    const auto& p = c.oracle[static_cast<std::size_t>(a)];
    ASSERT_EQ(p.size(), c.candidate_actions.size());
    auto sorted = p;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_LT(std::abs(deviation(c, a, 0.0, 2.0)), 4.0) << kActionInfos[to_size(a)].name;
    // Not only on average: in each fifth of the probabilities too.
    for (std::size_t fifth = 0; fifth < 5; ++fifth) {
      const double low = static_cast<double>(sorted[fifth * sorted.size() / 5]);
      const double high =
          fifth == 4 ? 2.0 : static_cast<double>(sorted[(fifth + 1) * sorted.size() / 5]);
      EXPECT_LT(std::abs(deviation(c, a, low, high)), 4.0)
          << kActionInfos[to_size(a)].name << " from " << low << " to " << high;
    }
  }
}

TEST(Rows, LabelsAndDwellAgree) {
  const auto c = draw(short_rows(), 0, 1500);
  std::uint64_t drawn_bits = 0;
  for (int a = 0; a < kDrawnActions; ++a) {
    drawn_bits |= std::uint64_t{1} << kActionInfos[to_size(a)].bit;
  }
  const auto has = [](std::int64_t actions, int a) {
    return (static_cast<std::uint64_t>(actions) >> kActionInfos[to_size(a)].bit & 1) != 0;
  };
  for (std::size_t i = 0; i < c.candidate_actions.size(); ++i) {
    const std::int64_t actions = c.candidate_actions[i];
    const float dwell = c.candidate_dwell[i];
    const bool engaged = (static_cast<std::uint64_t>(actions) & drawn_bits) != 0;
    EXPECT_EQ(engaged, dwell > 0.0F);
    EXPECT_EQ(engaged, !has(actions, kNotDwelled));
    EXPECT_EQ(dwell >= 10.0F, has(actions, kDwelled));
    EXPECT_TRUE(dwell == 0.0F || (dwell >= 0.5F && dwell <= 300.0F));
  }
  for (std::size_t i = 0; i < c.history_actions.size(); ++i) {
    EXPECT_NE(static_cast<std::uint64_t>(c.history_actions[i]) & drawn_bits, 0U)
        << "events of a history are engaged";
    EXPECT_GE(c.history_dwell[i], 0.5F);
    EXPECT_EQ(c.history_dwell[i] >= 10.0F, has(c.history_actions[i], kDwelled));
  }
}

TEST(Rows, HistoriesAreOrderedAndCandidatesDistinct) {
  const auto c = draw(short_rows(), 100, 800);
  std::size_t empty = 0;
  for (std::size_t r = 0; r < to_size(c.rows()); ++r) {
    const auto begin = to_size(c.history_offsets[r]), end = to_size(c.history_offsets[r + 1]);
    EXPECT_LE(end - begin, 30U);
    empty += begin == end ? 1 : 0;
    for (std::size_t i = begin; i < end; ++i) {
      EXPECT_TRUE(i == begin || c.history_time[i - 1] < c.history_time[i]);
      EXPECT_LT(c.history_time[i], c.request_time[r] - 3600);
      EXPECT_LT(c.history_post_time[i], c.history_time[i]);
      EXPECT_TRUE(c.history_hour[i] >= 1 && c.history_hour[i] <= 24);
      EXPECT_NE(c.history_item_id[i], 0);
    }
    const auto first = c.candidate_item_id.begin() + c.candidate_offsets[r];
    const auto last = c.candidate_item_id.begin() + c.candidate_offsets[r + 1];
    const std::set<std::int64_t> ids(first, last);
    EXPECT_EQ(ids.size(), to_size(last - first));
    EXPECT_TRUE(last - first >= 8 && last - first <= 64);
    EXPECT_TRUE(r == 0 || c.request_time[r - 1] <= c.request_time[r]);
  }
  EXPECT_GT(empty, 0U) << "a history may be empty";
}

TEST(Rows, CandidatesAreDistinctThoughEveryItemIsShown) {
  Options o = short_rows();
  o.items = 12;
  o.candidates = {12, 12, 1.0};
  const auto c = draw(o, 0, 50);
  for (std::size_t r = 0; r < 50; ++r) {
    const auto first = c.candidate_item_id.begin() + c.candidate_offsets[r];
    EXPECT_EQ(std::set<std::int64_t>(first, first + 12).size(), 12U);
  }
}

TEST(Rows, ARowDependsOnItsNumberAlone) {
  const Options o = short_rows();
  const auto all = draw(o, 0, 40);
  const auto some = draw(o, 25, 10);
  for (std::size_t r = 0; r < 10; ++r) {
    EXPECT_EQ(some.user_id[r], all.user_id[25 + r]);
    const auto begin = to_size(all.candidate_offsets[25 + r]);
    for (std::size_t i = 0; i < to_size(some.candidate_offsets[r + 1] - some.candidate_offsets[r]);
         ++i) {
      const std::size_t j = to_size(some.candidate_offsets[r]) + i;
      ASSERT_EQ(some.candidate_item_id[j], all.candidate_item_id[begin + i]);
      ASSERT_EQ(some.candidate_actions[j], all.candidate_actions[begin + i]);
      ASSERT_EQ(some.oracle[0][j], all.oracle[0][begin + i]);
    }
  }
}

TEST(Rows, HistoryLengthsFollowTheirShares) {
  Options o;
  o.history = {{1, 3, 1.0}, {10, 10, 3.0}};
  const auto c = draw(o, 0, 2000);
  int tens = 0;
  for (std::size_t r = 0; r < 2000; ++r) {
    const auto n = c.history_offsets[r + 1] - c.history_offsets[r];
    EXPECT_TRUE((n >= 1 && n <= 3) || n == 10) << n;
    tens += n == 10 ? 1 : 0;
  }
  EXPECT_NEAR(tens, 1500, 90);
  EXPECT_NEAR(Options().mean_history(), 335, 1);
}

TEST(Rows, ActiveUsersComeMoreOftenAndInTheEvening) {
  const auto c = draw(short_rows(), 0, 4000);
  double activity = 0.0;
  int evening = 0;
  for (std::size_t r = 0; r < 4000; ++r) {
    activity += static_cast<double>(c.user_log_activity[r]);
    evening += c.request_hour[r] >= 17 && c.request_hour[r] <= 23 ? 1 : 0;
  }
  EXPECT_GT(activity / 4000, 0.15) << "0 when users come equally often";
  EXPECT_GT(evening, 1600) << "1167 when hours are equal";
}

TEST(Rows, NoActionAtAllIsPossible) {
  Options o = short_rows();
  o.rates.fill(0.0);
  const auto c = draw(o, 0, 50);
  for (const auto actions : c.candidate_actions) {
    EXPECT_EQ(actions, std::int64_t{1} << kActionInfos[kNotDwelled].bit);
  }
  for (const float p : c.oracle[kNotDwelled]) EXPECT_EQ(p, 1.0F);
}

TEST(Rows, TimesOfFarRowsDoNotOverflow) {
  EXPECT_EQ(request_time_of(0, 10'000), kFirstRequest);
  EXPECT_EQ(request_time_of(10'000, 10'000), kFirstRequest + 86'400);
  EXPECT_EQ(request_time_of(5'000, 10'000), kFirstRequest + 43'200);
  EXPECT_GE(request_time_of(std::int64_t{1} << 40, std::int64_t{1} << 40), kFirstRequest);
}

}  // namespace
}  // namespace paceline::data::synth
