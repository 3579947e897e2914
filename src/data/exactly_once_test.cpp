#include <gtest/gtest.h>

#include "data/testing/exactly_once.hpp"

namespace paceline::data {
namespace {

// tests/stress runs many more.
TEST(ExactlyOnce, OverRanksKillsAndOtherLimits) {
  constexpr std::uint64_t kSeedOfRuns = 20;
  for (std::uint64_t round = 0; round < 80; ++round) {
    EXPECT_EQ(testing::ExactlyOnce(kSeedOfRuns, round).run(), "")
        << "seed " << kSeedOfRuns << " round " << round;
  }
}

}  // namespace
}  // namespace paceline::data
