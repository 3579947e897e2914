#include "core/rng.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace paceline {
namespace {

// The known answers of philox4x32-10 that its authors publish.
TEST(Philox, PublishedVectors) {
  using Counter = Philox::Counter;
  EXPECT_EQ(Philox::generate({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox::generate({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox::generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, IsAFunctionOfItsArguments) {
  constexpr CounterRng kA(7, RngStream::kTest);
  static_assert(kA.bits(3, 4) == CounterRng(7, RngStream::kTest).bits(3, 4));
  EXPECT_NE(kA.bits(3, 4), kA.bits(4, 3));
  EXPECT_NE(kA.bits(3), kA.bits(std::uint64_t{3} << 32)) << "all 64 bits of a count";
  EXPECT_NE(kA.bits(3, 4), CounterRng(8, RngStream::kTest).bits(3, 4));
  EXPECT_NE(kA.bits(3, 4), CounterRng(7 + (std::uint64_t{1} << 32), RngStream::kTest).bits(3, 4));
  EXPECT_NE(kA.bits(3, 4), CounterRng(7, RngStream::kInit).bits(3, 4));
}

TEST(CounterRng, StreamsAndSeedsShareNoNumber) {
  std::set<std::uint64_t> seen;
  std::size_t drawn = 0;
  for (const auto stream : {RngStream::kInit, RngStream::kBlocks, RngStream::kRows,
                            RngStream::kBootstrap, RngStream::kSynth, RngStream::kTest}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const CounterRng rng(seed, stream);
      for (std::uint64_t a = 0; a < 64; ++a, ++drawn) seen.insert(rng.bits(a));
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(CounterRng, UniformHasItsMoments) {
  const CounterRng rng(1, RngStream::kTest);
  double sum = 0, squares = 0;
  constexpr int kCount = 20'000;
  for (int i = 0; i < kCount; ++i) {
    const double u = rng.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);  // about 5 standard errors
  EXPECT_NEAR(squares / kCount, 1.0 / 3.0, 0.01);
}

TEST(CounterRng, NormalHasItsMoments) {
  const CounterRng rng(1, RngStream::kTest);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kCount = 20'000;
  for (int i = 0; i < kCount; ++i) {
    const double z = rng.normal(static_cast<std::uint64_t>(i), 5);
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.035);
  EXPECT_NEAR(squares / kCount, 1.0, 0.05);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.35);
}

TEST(CounterRng, BelowIsEvenAndInRange) {
  const CounterRng rng(2, RngStream::kTest);
  int count[7] = {};
  for (std::uint64_t i = 0; i < 7000; ++i) ++count[rng.below(7, i)];
  for (const int n : count) EXPECT_NEAR(n, 1000, 150);
  EXPECT_EQ(rng.below(1, 3), 0U);
  EXPECT_LT(rng.below(~std::uint64_t{0}, 3), ~std::uint64_t{0});
}

}  // namespace
}  // namespace paceline
