#include "ops/simd.hpp"

#include <array>
#include <cmath>

#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

template <typename F>
float lane(F&& f, float x) {
  std::array<float, 8> out;
  _mm256_storeu_ps(out.data(), f(_mm256_set1_ps(x)));
  for (const float v : out) EXPECT_TRUE(v == out[0] || std::isnan(v));
  return out[0];
}

// Distance to the fp64 value in units of the last place of fp32.
double ulps(float y, double ref) {
  const auto r = std::abs(static_cast<float>(ref));
  return std::abs(y - ref) / (std::nextafter(r, INFINITY) - r);
}

TEST(SimdTest, ExpWithinTwoUlp) {
  double worst = 0.0;
  for (int i = -870000; i <= 880000; i += 7) {
    const float x = static_cast<float>(i) * 1e-4F;
    if (x < -87.0F || x > 88.0F) continue;
    worst = std::max(worst, ulps(lane(simd::exp_ps, x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(lane(simd::exp_ps, 0.0F), 1.0F);
  EXPECT_EQ(lane(simd::exp_ps, -INFINITY), lane(simd::exp_ps, -87.0F));
  EXPECT_EQ(lane(simd::exp_ps, INFINITY), lane(simd::exp_ps, 88.0F));
  EXPECT_TRUE(std::isnan(lane(simd::exp_ps, NAN)));
}

TEST(SimdTest, Log1pWithinThreeUlp) {
  double worst = 0.0;
  for (int i = 0; i <= 100000; ++i) {
    const float e = static_cast<float>(i) * 1e-5F;
    worst = std::max(worst, ulps(lane(simd::log1p_unit_ps, e), std::log1p(static_cast<double>(e))));
  }
  for (float e = 1.0F; e > 1e-37F; e *= 0.83F) {
    worst = std::max(worst, ulps(lane(simd::log1p_unit_ps, e), std::log1p(static_cast<double>(e))));
  }
  EXPECT_LE(worst, 3.0);
  EXPECT_EQ(lane(simd::log1p_unit_ps, 0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(lane(simd::log1p_unit_ps, NAN)));
}

TEST(SimdTest, VectorsCoverEveryElementOnce) {
  for (const std::int64_t n : {0, 1, 7, 8, 9, 16, 31}) {
    testing::Guarded<float> y(std::vector<float>(static_cast<std::size_t>(n), 1.0F));
    simd::for_vectors(n, [&](std::int64_t i, auto lanes) {
      lanes.store(y.data() + i, _mm256_add_ps(lanes.load(y.data() + i), _mm256_set1_ps(1.0F)));
    });
    EXPECT_TRUE(y.intact());
    for (const float v : y.span()) EXPECT_EQ(v, 2.0F);
  }
}

}  // namespace
}  // namespace paceline::ops
