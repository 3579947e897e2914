#include "ops/global_norm/global_norm_cuda.hpp"

#include "device/testing/gpu_test.hpp"
#include "ops/global_norm/global_norm_ref.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::testing::DeviceArray;

class GpuGlobalNorm : public device::testing::GpuTest {
 protected:
  static double norm_of(const std::vector<float>& g) {
    const DeviceArray<float> d_g(g);
    const DeviceArray<double> partials(std::vector<double>(kGlobalNormPartials, NAN));
    const DeviceArray<double> norm(1);
    const device::Stream stream("test");
    global_norm_cuda(stream, static_cast<std::int64_t>(g.size()), d_g.data(), partials.data(),
                     norm.data());
    stream.synchronize();
    partials.read();
    return norm.read()[0];
  }
};

TEST_F(GpuGlobalNorm, MatchesReference) {
  for (const int n : {0, 1, 7, 4095, 4096, 4097, 70001, 3000003}) {
    const auto g = normal_values(n, 1);
    EXPECT_NEAR(norm_of(g), global_norm_ref(g), 1e-13 * global_norm_ref(g)) << n;
    EXPECT_EQ(norm_of(g), norm_of(g)) << n;
  }
}

TEST_F(GpuGlobalNorm, HoldsLargeAndShowsNonFinite) {
  EXPECT_NEAR(norm_of({3e38F, 3e38F}), 3e38 * std::sqrt(2.0), 1e32);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{17003}, std::size_t{20000}}) {
      auto g = normal_values(20001, 1);
      g[at] = bad;
      EXPECT_FALSE(std::isfinite(norm_of(g))) << at;
    }
  }
}

}  // namespace
}  // namespace paceline::ops
