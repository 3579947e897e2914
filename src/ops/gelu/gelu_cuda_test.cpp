// GELU on the GPU against the fp64 reference of the CPU op.
#include "ops/gelu/gelu_cuda.hpp"

#include <cmath>
#include <limits>

#include "device/testing/gpu_test.hpp"
#include "ops/gelu/gelu_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

template <typename T>
struct Outputs {
  std::vector<float> y, dx;
};

// In place: y over x, dx over dy.
template <typename T>
Outputs<T> run(const std::vector<T>& x, const std::vector<T>& dy, bool in_place) {
  const DeviceArray<T> d_x(x), d_dy(dy), y(x.size()), dx(x.size());
  const device::Stream stream("test");
  const auto n = static_cast<std::int64_t>(x.size());
  const auto& to_dx = in_place ? d_dy : dx;
  const auto& to_y = in_place ? d_x : y;
  gelu_grad_cuda<T>(stream, n, d_x.data(), d_dy.data(), to_dx.data());
  gelu_cuda<T>(stream, n, d_x.data(), to_y.data());
  stream.synchronize();
  return {all_as_float(to_y.read()), all_as_float(to_dx.read())};
}

class GpuGelu : public device::testing::GpuTest, public ::testing::WithParamInterface<int> {};

template <typename T>
void expect_reference(int n) {
  const auto x = all_as<T>(normal_values(n, 1, 3.0));
  const auto dy = all_as<T>(normal_values(n, 2));
  std::vector<double> y, dx;
  std::vector<float> y_naive, dx_naive;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float v = as_float(x[i]), d = as_float(dy[i]);
    y.push_back(gelu_ref(double{v}));
    dx.push_back(d * gelu_slope_ref(double{v}));
    y_naive.push_back(as_float(as<T>(gelu_ref(v))));
    dx_naive.push_back(as_float(as<T>(d * gelu_slope_ref(v))));
  }
  const auto got = run(x, dy, false), in_place = run(x, dy, true);
  EXPECT_TRUE(near_reference(got.y, y, y_naive));
  EXPECT_TRUE(near_reference(got.dx, dx, dx_naive));
  EXPECT_TRUE(same_bits(got.y, in_place.y));
  EXPECT_TRUE(same_bits(got.dx, in_place.dx));
}

TEST_P(GpuGelu, MatchesReferenceAndIsTheSameAgainInPlace) {
  expect_reference<float>(GetParam());
  expect_reference<BFloat16>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuGelu,
                         ::testing::Values(0, 8, 2040, 2048, 4088, 4096, 4104, 30008));

class GpuGeluRange : public device::testing::GpuTest {};

TEST_F(GpuGeluRange, EndsAreExactAndNonFiniteIsSeen) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-1e30F, -50.0F, -0.0F,  0.0F, 50.0F, 1e25F, NAN,    kInf,
                             -kInf,  16.5F,  -16.5F, 9.0F, -9.0F, 3e38F, -3e38F, 1.0F};
  const auto got = run(x, std::vector<float>(x.size(), 1.0F), false);
  for (const std::size_t shut : {0U, 1U, 10U, 14U}) {
    EXPECT_EQ(got.dx[shut], 0.0F);
    EXPECT_EQ(got.y[shut], 0.0F);
  }
  for (const std::size_t open : {4U, 5U, 9U, 13U}) {
    EXPECT_EQ(got.dx[open], 1.0F);
    EXPECT_EQ(got.y[open], x[open]);
  }
  EXPECT_EQ(got.dx[2], 0.5F);
  EXPECT_EQ(got.y[2], 0.0F);
  EXPECT_EQ(got.y[3], 0.0F);
  EXPECT_TRUE(std::isnan(got.y[6]) && std::isnan(got.dx[6]));
  EXPECT_FALSE(std::isfinite(got.y[7]));
  EXPECT_FALSE(std::isfinite(got.y[8]));
}

using GpuGeluDeathTest = device::testing::GpuDeathTest;
TEST_F(GpuGeluDeathTest, PartOfAVectorAborts) {
  const std::vector<float> x(12);
  EXPECT_DEATH(run(x, x, false), "a multiple of 8");
}

}  // namespace
}  // namespace paceline::ops
