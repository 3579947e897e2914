#include "ops/global_norm/global_norm_ref.hpp"

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

std::vector<double> at_threads(const std::vector<float>& g) {
  return at_each_thread_count([&](Context& ctx) {
    return cpu_ops().global_norm(ctx, static_cast<std::int64_t>(g.size()), g.data());
  });
}

TEST(GlobalNormTest, MatchesReferenceAtEachThreadCount) {
  for (const int n : {0, 1, 7, 8191, 8192, 8193, 70001}) {
    const auto g = normal_values(n, 1);
    const auto norms = at_threads(g);
    for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
    EXPECT_NEAR(norms[0], global_norm_ref(g), 1e-13 * global_norm_ref(g)) << n;
  }
}

TEST(GlobalNormTest, HoldsLargeAndShowsNonFinite) {
  EXPECT_NEAR(at_threads({3e38F, 3e38F})[0], 3e38 * std::sqrt(2.0), 1e32);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    auto g = normal_values(20001, 1);
    g[17003] = bad;
    for (const double norm : at_threads(g)) EXPECT_FALSE(std::isfinite(norm));
  }
}

}  // namespace
}  // namespace paceline::ops
