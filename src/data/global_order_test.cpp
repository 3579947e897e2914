#include "data/global_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace paceline::data {
namespace {

std::vector<BlockInfo> blocks_of(const std::vector<std::int64_t>& rows) {
  std::vector<BlockInfo> blocks;
  std::int64_t first = 0;
  for (const auto n : rows) {
    blocks.push_back({n, first, ""});
    first += n;
  }
  return blocks;
}

// The dataset rows in the order in which an epoch sees them.
std::vector<std::int64_t> sequence(const std::vector<BlockInfo>& blocks, std::uint64_t fingerprint,
                                   std::uint64_t seed, std::int64_t epoch, std::int64_t window) {
  const GlobalOrder order(blocks, fingerprint, seed, epoch, window);
  std::vector<std::int64_t> rows;
  for (std::int64_t w = 0; w < order.windows(); ++w) {
    const auto span = order.window(w);
    std::vector<std::int64_t> held;
    for (auto place = span.first_place; place < span.last_place; ++place) {
      const auto& b = blocks[static_cast<std::size_t>(order.block_at(place))];
      for (std::int64_t r = 0; r < b.rows; ++r) held.push_back(b.first_row + r);
    }
    EXPECT_EQ(static_cast<std::int64_t>(held.size()), span.rows);
    EXPECT_EQ(static_cast<std::int64_t>(rows.size()), span.first_row);
    const Permutation p = order.rows_of(w);
    for (std::uint64_t k = 0; k < p.size(); ++k) rows.push_back(held[p(k)]);
  }
  EXPECT_EQ(static_cast<std::int64_t>(rows.size()), order.rows());
  return rows;
}

TEST(Permutation, EveryIndexOnceForEverySmallSize) {
  for (std::uint64_t n = 0; n <= 300; ++n) {
    const Permutation p(n, 7, 2, n);
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto to = p(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(seen[to]) << "n " << n << " i " << i;
      seen[to] = true;
    }
  }
}

TEST(Permutation, SeedStreamAndTweakGiveOtherOrders) {
  constexpr std::uint64_t kN = 1000;
  const auto all = [](const Permutation& p) {
    std::vector<std::uint64_t> v;
    for (std::uint64_t i = 0; i < p.size(); ++i) v.push_back(p(i));
    return v;
  };
  const std::set<std::vector<std::uint64_t>> orders{
      all(Permutation(kN, 1, 2, 3)), all(Permutation(kN, 2, 2, 3)), all(Permutation(kN, 1, 3, 3)),
      all(Permutation(kN, 1, 2, 4)), all(Permutation::identity(kN))};
  EXPECT_EQ(orders.size(), 5U);
}

TEST(Permutation, PlacesLookUniform) {
  // Where the first two of 8 go, over many tweaks: each pair of places about as often.
  std::vector<int> hits(64);
  constexpr std::uint64_t kTrials = 56 * 400;
  for (std::uint64_t t = 0; t < kTrials; ++t) {
    const Permutation p(8, 5, 1, t);
    ++hits[p(0) * 8 + p(1)];
  }
  for (std::size_t i = 0; i < hits.size(); ++i) {
    if (i % 9 == 0) continue;
    EXPECT_NEAR(hits[i], 400, 90) << i;
  }
}

TEST(GlobalOrder, EveryRowOnceAtEveryWindow) {
  const auto blocks = blocks_of({5, 0, 1, 17, 3, 0, 8, 2});
  for (std::int64_t window = 0; window <= 10; ++window) {
    auto rows = sequence(blocks, 9, 1, 0, window);
    std::sort(rows.begin(), rows.end());
    std::vector<std::int64_t> all(36);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(rows, all) << "window " << window;
  }
}

TEST(GlobalOrder, WindowZeroKeepsFileOrder) {
  const auto rows = sequence(blocks_of({4, 4, 4}), 9, 1, 3, 0);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
}

TEST(GlobalOrder, DependsOnEachOfItsInputsOnly) {
  const auto blocks = blocks_of({16, 16, 16, 16});
  const auto base = sequence(blocks, 9, 1, 0, 2);
  EXPECT_EQ(base, sequence(blocks, 9, 1, 0, 2));
  EXPECT_NE(base, sequence(blocks, 8, 1, 0, 2));
  EXPECT_NE(base, sequence(blocks, 9, 2, 0, 2));
  EXPECT_NE(base, sequence(blocks, 9, 1, 1, 2));
  EXPECT_NE(base, sequence(blocks, 9, 1, 0, 3));
  // A window beyond the number of blocks is the whole dataset.
  EXPECT_EQ(sequence(blocks, 9, 1, 0, 4), sequence(blocks, 9, 1, 0, 400));
}

TEST(GlobalOrder, StaysWhatItWas) {
  // A stored order: saved positions of older runs must keep their meaning.
  const std::vector<std::int64_t> expected{0, 7, 1, 10, 9, 8, 3, 11, 2, 6, 4, 5};
  EXPECT_EQ(sequence(blocks_of({4, 3, 5}), 0x1234567890ABCDEFU, 42, 1, 2), expected);
}

TEST(GlobalOrder, FindsTheWindowOfARow) {
  const auto blocks = blocks_of({5, 0, 1, 17, 3, 0, 0, 8, 2});
  for (const std::int64_t window : {0, 1, 2, 3, 100}) {
    const GlobalOrder order(blocks, 1, 2, 3, window);
    for (std::int64_t g = 0; g < order.rows(); ++g) {
      const auto span = order.window(order.window_of(g));
      EXPECT_GE(g, span.first_row);
      EXPECT_LT(g, span.first_row + span.rows);
    }
  }
}

TEST(GlobalOrder, NoBlocks) {
  const GlobalOrder order({}, 1, 2, 0, 4);
  EXPECT_EQ(order.rows(), 0);
  EXPECT_EQ(order.windows(), 0);
}

}  // namespace
}  // namespace paceline::data
