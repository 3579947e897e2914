#include "features/hash.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace paceline::features {
namespace {

TEST(Hash, PublishedVectors) {
  // The first outputs of SplitMix64 seeded with 1234567.
  EXPECT_EQ(hash_id(1234567, 0), 6457827717110365317U);
  EXPECT_EQ(hash_id(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(hash_id(1234567, 2), 9817491932198370423U);
  EXPECT_EQ(hash_id(1234567, 3), 4593380528125082431U);
}

TEST(Hash, RowsStayInTheirPart) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t rows :
       {std::int64_t{1}, std::int64_t{7}, (std::int64_t{1} << 31) - 100}) {
    for (const std::int64_t id : {kMin, std::int64_t{-1}, std::int64_t{1}, kMax}) {
      for (int j = 0; j < 4; ++j) {
        const auto row = table_row(id, j, rows, 99);
        EXPECT_GE(row, 99);
        EXPECT_LT(row, 99 + rows);
      }
    }
  }
}

TEST(Hash, ZeroIsMissing) { EXPECT_EQ(table_row(0, 1, 100, 5), kMissingRow); }

TEST(Hash, SpreadsConsecutiveIds) {
  std::vector<int> hits(64);
  for (std::int64_t id = 1; id <= 64000; ++id)
    ++hits[static_cast<std::size_t>(table_row(id, 0, 64, 0))];
  for (const int h : hits) EXPECT_NEAR(h, 1000, 150);
}

}  // namespace
}  // namespace paceline::features
