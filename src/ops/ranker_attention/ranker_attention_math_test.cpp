// The vector functions of the attention against libm in double.
#include "ops/ranker_attention/ranker_attention_math.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/ranker_attention/ranker_attention_tiles.hpp"

namespace paceline::ops::attention {
namespace {

template <typename F>
float one(F f, float x) {
  return _mm256_cvtss_f32(f(_mm256_set1_ps(x)));
}

// Distance in units of the last place of the exact value.
double ulps(float y, double exact) {
  const auto near = static_cast<float>(exact);
  const double ulp =
      static_cast<double>(std::nextafter(std::abs(near), std::numeric_limits<float>::infinity())) -
      std::abs(near);
  return std::abs(y - exact) / ulp;
}

// Largest error over floats of both signs with magnitude in [lo, hi], every `step`-th bit pattern.
template <typename F, typename G>
double worst(F f, G exact, float lo, float hi, std::uint32_t step) {
  double most = 0;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(lo);
       bits <= std::bit_cast<std::uint32_t>(hi); bits += step) {
    for (const float sign : {1.0F, -1.0F}) {
      const float x = sign * std::bit_cast<float>(bits);
      most = std::max(most, ulps(one(f, x), exact(static_cast<double>(x))));
    }
  }
  return most;
}

TEST(AttentionMath, Exp2WithinOneUlp) {
  const auto exact = [](double x) { return std::exp2(x); };
  EXPECT_LE(worst(exp2_ps, exact, 0.0F, 126.0F, 4099), 1.0);
}

TEST(AttentionMath, Exp2Edges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(one(exp2_ps, 0.0F), 1.0F);
  EXPECT_EQ(one(exp2_ps, -0.0F), 1.0F);
  EXPECT_EQ(one(exp2_ps, -126.0F), 0x1p-126F);
  EXPECT_EQ(one(exp2_ps, std::nextafter(-126.0F, -inf)), 0.0F);
  EXPECT_EQ(one(exp2_ps, -1e30F), 0.0F);
  EXPECT_EQ(one(exp2_ps, -inf), 0.0F);
  EXPECT_EQ(one(exp2_ps, 127.0F), 0x1p127F);
  EXPECT_EQ(one(exp2_ps, inf), 0x1p127F);
  EXPECT_TRUE(std::isnan(one(exp2_ps, std::numeric_limits<float>::quiet_NaN())));
}

TEST(AttentionMath, TanhWithinThreeUlps) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst(tanh_ps, exact, 1e-30F, 20.0F, 4099), 3.0);
  EXPECT_EQ(one(tanh_ps, 0.0F), 0.0F);
  EXPECT_EQ(one(tanh_ps, 1e10F), 1.0F);
  EXPECT_EQ(one(tanh_ps, -std::numeric_limits<float>::infinity()), -1.0F);
  EXPECT_TRUE(std::isnan(one(tanh_ps, std::numeric_limits<float>::quiet_NaN())));
}

TEST(AttentionMath, LanesAndMasks) {
  const __m256 x = _mm256_setr_ps(1, 20, 300, 4000, 50000, 600000, 7000000, 9);
  EXPECT_EQ(sum_lanes(x), 7654330.0F);
  EXPECT_EQ(max_lanes(x), 7000000.0F);
  for (int n = 0; n <= 8; ++n) EXPECT_EQ(_mm256_movemask_ps(first_lanes(n)), (1 << n) - 1);
}

TEST(AttentionTiles, TransposedPanels) {
  for (const int n : {1, 7, 8, 16, 17, 33}) {
    for (const int dim : {8, 16, 24}) {
      const int stride = dim + 5;
      std::vector<float> src(static_cast<std::size_t>(n * stride));
      for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i + 1);
      const int padded = pad_dim(dim);
      alignas(32) std::array<float, 48 * 32> dst;
      dst.fill(-1.0F);
      pack_transposed(src.data(), stride, n, dim, dst.data());
      for (int j = 0; j < pad_dim(n); ++j) {
        for (int d = 0; d < padded; ++d) {
          const float want = j < n && d < dim ? static_cast<float>(j * stride + d + 1) : 0.0F;
          EXPECT_EQ(dst[static_cast<std::size_t>((j / 16 * padded + d) * 16 + j % 16)], want);
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline::ops::attention
