// Gathered rows on the GPU against plain loops.
#include "ops/rows/rows_cuda.hpp"

#include <limits>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  int n, rows, width;
};
void PrintTo(const Shape& s, std::ostream* os) { *os << s.n << " of " << s.rows << "x" << s.width; }

class GpuRows : public device::testing::GpuTest, public ::testing::WithParamInterface<Shape> {};

template <typename T>
void expect_gathered(Shape s) {
  auto values = normal_values(std::int64_t{s.rows} * s.width, 1);
  for (std::size_t i = 0; i < values.size(); i += 5) values[i] = kNan;
  const auto in = all_as<T>(values);
  const auto width = static_cast<std::size_t>(s.width);
  std::vector<std::int32_t> index;
  std::vector<T> expected;
  for (int i = 0; i < s.n; ++i) {
    const auto below = static_cast<std::uint64_t>(s.rows + 1);
    index.push_back(
        static_cast<std::int32_t>(random_below(below, static_cast<std::uint64_t>(i), 2)) - 1);
    for (std::size_t c = 0; c < width; ++c) {
      const auto row = static_cast<std::size_t>(std::max(index.back(), 0));
      expected.push_back(index.back() < 0 ? T{} : in[row * width + c]);
    }
  }
  const DeviceArray<T> d_in(in), out(std::vector<T>(expected.size(), as<T>(kNan)));
  const DeviceArray<std::int32_t> d_index(index);
  const device::Stream stream("test");
  gather_rows_cuda<T>(stream, s.n, s.width, d_index.data(), d_in.data(), out.data());
  stream.synchronize();
  EXPECT_TRUE(same_bits(all_as_float(out.read()), all_as_float(expected)));
}

TEST_P(GpuRows, AreCopiedAndZerosWhereThereIsNone) {
  expect_gathered<float>(GetParam());
  expect_gathered<BFloat16>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuRows,
                         ::testing::Values(Shape{0, 3, 8}, Shape{1, 1, 8}, Shape{67, 300, 64},
                                           Shape{129, 50, 512}, Shape{1025, 700, 136},
                                           Shape{9, 20, 2568}));

using GpuRowsDeathTest = device::testing::GpuDeathTest;
TEST_F(GpuRowsDeathTest, PartOfAVectorAborts) {
  EXPECT_DEATH(expect_gathered<float>({2, 2, 12}), "a multiple of 8 columns");
}

}  // namespace
}  // namespace paceline::ops
