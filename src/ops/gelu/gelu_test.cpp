#include "ops/gelu/gelu_ref.hpp"

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

class GeluTest : public ::testing::TestWithParam<int> {};

TEST_P(GeluTest, MatchesReferenceAtEachThreadCount) {
  const int n = GetParam();
  const auto x = normal_values(n, 1, 3.0);
  const auto dy = normal_values(n, 2);
  std::vector<double> y_ref, dx_ref;
  std::vector<float> y_naive, dx_naive;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y_ref.push_back(gelu_ref<double>(x[i]));
    y_naive.push_back(gelu_ref(x[i]));
    dx_ref.push_back(gelu_slope_ref<double>(x[i]) * dy[i]);
    dx_naive.push_back(gelu_slope_ref(x[i]) * dy[i]);
  }
  const auto runs = at_each_thread_count([&](Context& ctx) {
    Guarded<float> y(n), dx(n);
    cpu_ops().gelu(ctx, n, x.data(), y.data());
    cpu_ops().gelu_grad(ctx, n, x.data(), dy.data(), dx.data());
    EXPECT_TRUE(y.intact() && dx.intact());
    return std::pair(y.vector(), dx.vector());
  });
  for (const auto& [y, dx] : runs) {
    EXPECT_TRUE(same_bits(runs[0].first, y));
    EXPECT_TRUE(same_bits(runs[0].second, dx));
    EXPECT_TRUE(near_reference(y, y_ref, y_naive));
    EXPECT_TRUE(near_reference(dx, dx_ref, dx_naive));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, GeluTest, ::testing::Values(0, 1, 7, 8, 9, 8191, 8193, 20011));

TEST(GeluGradientTest, MatchesCentralDifferences) {
  for (const double x : {-6.0, -2.5, -0.7, 0.0, 1e-3, 0.9, 3.0, 7.0}) {
    EXPECT_TRUE(gradient_matches([](const auto& v) { return gelu_ref(v[0]); }, {x},
                                 {gelu_slope_ref(x)}, 1e-5, 1e-9));
  }
}

TEST(GeluRangeTest, AccurateOverTheWholeRange) {
  std::vector<float> x;
  for (int i = -40000; i <= 40000; ++i) x.push_back(static_cast<float>(i) * 2.5e-4F);
  std::vector<float> y(x.size());
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  cpu_ops().gelu(ctx, static_cast<std::int64_t>(x.size()), x.data(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    // 1 + tanh(u) by a form that keeps its digits for negative u.
    const double v = x[i];
    const double u = std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v);
    const double ref = v / (1.0 + std::exp(-2.0 * u));
    // A rounding of 2u, of which there are a few, moves y by |2u| roundings.
    const double ulps = 4.0 + 6.0 * std::abs(u);
    ASSERT_NEAR(y[i], ref, ulps * std::abs(ref) * 6e-8 + 1e-37) << "x = " << x[i];
  }
}

TEST(GeluRangeTest, EndsAndAliasing) {
  std::vector<float> x{-1e30F, -50.0F, -0.0F, 0.0F, 50.0F, 1e10F, NAN, INFINITY, -INFINITY};
  std::vector<float> dx(x.size(), 1.0F);
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  const auto n = static_cast<std::int64_t>(x.size());
  cpu_ops().gelu_grad(ctx, n, x.data(), dx.data(), dx.data());
  EXPECT_NEAR(dx[0], 0.0F, 1e-30F);
  EXPECT_NEAR(dx[1], 0.0F, 1e-30F);
  EXPECT_EQ(dx[2], 0.5F);
  EXPECT_EQ(dx[4], 1.0F);
  EXPECT_EQ(dx[5], 1.0F);
  EXPECT_TRUE(std::isnan(dx[6]));
  cpu_ops().gelu(ctx, n, x.data(), x.data());
  EXPECT_NEAR(x[1], 0.0F, 1e-30F);
  EXPECT_EQ(x[2], 0.0F);
  EXPECT_EQ(x[3], 0.0F);
  EXPECT_EQ(x[4], 50.0F);
  EXPECT_EQ(x[5], 1e10F);
  EXPECT_TRUE(std::isnan(x[6]));
  EXPECT_FALSE(std::isfinite(x[7]));
  EXPECT_FALSE(std::isfinite(x[8]));
}

}  // namespace
}  // namespace paceline::ops
