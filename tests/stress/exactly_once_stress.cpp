#include <gtest/gtest.h>

#include <cstdio>

#include "core/log.hpp"
#include "data/testing/exactly_once.hpp"
#include "stress.hpp"

namespace paceline {
namespace {

TEST(ExactlyOnceStress, OverRanksKillsAndOtherLimits) {
  log::set_level(log::Level::kError);
  std::uint64_t tried = 0;
  EXPECT_EQ(
      stress::search("exactly_once", tried,
                     [](std::uint64_t seed) { return data::testing::ExactlyOnce(seed, 0).run(); }),
      "");
  std::printf("%llu random runs\n", static_cast<unsigned long long>(tried));
}

}  // namespace
}  // namespace paceline
