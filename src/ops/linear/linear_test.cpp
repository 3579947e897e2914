#include <array>
#include <cstring>
#include <ostream>

#include "ops/gemm.hpp"
#include "ops/linear/linear_ref.hpp"
#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int rows, in, out;
  int gap;  // between rows of x, y, dy and dx
  bool accumulate;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.rows << "x" << s.in << "x" << s.out << (s.accumulate ? "+" : "");
}

// Dense rows laid out with a stride; the gaps keep `fill`.
std::vector<float> strided(const std::vector<float>& dense, int rows, int columns, int stride,
                           float fill) {
  std::vector<float> out(static_cast<std::size_t>(rows * stride), fill);
  for (int r = 0; r < rows; ++r) {
    std::copy_n(dense.begin() + std::ptrdiff_t{r} * columns, columns,
                out.begin() + std::ptrdiff_t{r} * stride);
  }
  return out;
}

std::vector<float> dense(std::span<const float> v, int rows, int columns, int stride) {
  std::vector<float> out;
  for (int r = 0; r < rows; ++r) {
    out.insert(out.end(), v.begin() + std::ptrdiff_t{r} * stride,
               v.begin() + std::ptrdiff_t{r} * stride + columns);
  }
  return out;
}

template <typename T>
std::vector<T> plus(std::vector<T> a, const std::vector<float>& b, bool add) {
  for (std::size_t i = 0; add && i < a.size(); ++i) a[i] += static_cast<T>(b[i]);
  return a;
}

class LinearTest : public ::testing::TestWithParam<Shape> {
 protected:
  Shape s = GetParam();
  std::size_t rows = static_cast<std::size_t>(s.rows), in = static_cast<std::size_t>(s.in),
              out = static_cast<std::size_t>(s.out);
  std::vector<float> x = normal_values(s.rows * s.in, 1);
  std::vector<float> w = normal_values(s.out * s.in, 2);
  std::vector<float> dy = normal_values(s.rows * s.out, 3);
  int in_stride = s.in + s.gap, out_stride = s.out + s.gap;

  // Runs `call` on a guarded output at each thread count: equal bits, gaps and guards untouched.
  template <typename F>
  std::vector<float> run(const std::vector<float>& start, int n, int columns, int stride,
                         F&& call) {
    const auto results = at_each_thread_count([&](Context& ctx) {
      Guarded<float> result(strided(start, n, columns, stride, 7.5F));
      call(ctx, result.data());
      EXPECT_TRUE(result.intact());
      const auto got = dense(result.span(), n, columns, stride);
      EXPECT_TRUE(same_bits(strided(got, n, columns, stride, 7.5F), result.vector()));
      return got;
    });
    for (const auto& r : results) EXPECT_TRUE(same_bits(results[0], r));
    return results[0];
  }
};

TEST_P(LinearTest, Forward) {
  const auto start = normal_values(s.rows * s.out, 4);
  const auto strided_x = strided(x, s.rows, s.in, in_stride, NAN);
  const auto y = run(start, s.rows, s.out, out_stride, [&](Context& ctx, float* to) {
    cpu_ops().linear(ctx, {s.rows, s.in, s.out, strided_x.data(), in_stride, w.data(), to,
                           out_stride, s.accumulate});
  });
  EXPECT_TRUE(near_reference(
      y, plus(linear_ref(rows, in, out, to<double>(x), to<double>(w)), start, s.accumulate),
      plus(linear_ref(rows, in, out, x, w), start, s.accumulate)));
}

TEST_P(LinearTest, DataGradient) {
  const auto start = normal_values(s.rows * s.in, 5);
  const auto strided_dy = strided(dy, s.rows, s.out, out_stride, NAN);
  const auto dx = run(start, s.rows, s.in, in_stride, [&](Context& ctx, float* to) {
    cpu_ops().linear_data_grad(ctx, {s.rows, s.in, s.out, strided_dy.data(), out_stride, w.data(),
                                     to, in_stride, s.accumulate});
  });
  EXPECT_TRUE(near_reference(
      dx,
      plus(linear_data_grad_ref(rows, in, out, to<double>(dy), to<double>(w)), start, s.accumulate),
      plus(linear_data_grad_ref(rows, in, out, dy, w), start, s.accumulate)));
}

TEST_P(LinearTest, WeightGradient) {
  const auto start = normal_values(s.out * s.in, 6);
  const auto strided_x = strided(x, s.rows, s.in, in_stride, NAN);
  const auto strided_dy = strided(dy, s.rows, s.out, out_stride, NAN);
  const auto dw = run(start, s.out, s.in, s.in, [&](Context& ctx, float* to) {
    cpu_ops().linear_weight_grad(ctx, {s.rows, s.in, s.out, strided_x.data(), in_stride,
                                       strided_dy.data(), out_stride, to, s.accumulate});
  });
  EXPECT_TRUE(
      near_reference(dw,
                     plus(linear_weight_grad_ref(rows, in, out, to<double>(x), to<double>(dy)),
                          start, s.accumulate),
                     plus(linear_weight_grad_ref(rows, in, out, x, dy), start, s.accumulate)));
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, LinearTest,
    ::testing::Values(Shape{0, 8, 8, 0, false}, Shape{0, 8, 8, 0, true}, Shape{1, 1, 1, 0, false},
                      Shape{7, 13, 3, 5, false}, Shape{95, 68, 128, 0, true},
                      Shape{96, 128, 17, 3, false}, Shape{97, 100, 128, 0, false},
                      Shape{193, 64, 130, 8, true}, Shape{601, 37, 300, 0, true},
                      Shape{1531, 32, 24, 0, false}));

TEST(LinearGradientTest, MatchesCentralDifferences) {
  const auto x = to<double>(normal_values(3 * 4, 1));
  const auto w = to<double>(normal_values(5 * 4, 2));
  const auto dy = to<double>(normal_values(3 * 5, 3));
  EXPECT_TRUE(gradient_matches([&](const auto& v) { return inner(linear_ref(3, 4, 5, v, w), dy); },
                               x, linear_data_grad_ref(3, 4, 5, dy, w)));
  EXPECT_TRUE(gradient_matches([&](const auto& v) { return inner(linear_ref(3, 4, 5, x, v), dy); },
                               w, linear_weight_grad_ref(3, 4, 5, x, dy)));
}

// A row alone, and at every place among others (other values each time), has the same bits.
TEST(LinearRowTest, BitsDoNotDependOnPlaceOrNeighbours) {
  constexpr std::array<std::array<int, 2>, 6> kShapes{
      {{128, 256}, {256, 128}, {68, 128}, {128, 3}, {33, 65}, {512, 1024}}};
  pipeline::TaskPool pool(2);
  Context ctx(pool);
  for (const auto& [in, out] : kShapes) {
    const int rows = in == 512 ? 101 : 230;
    const auto w = normal_values(in * out, 1);
    for (const bool backward : {false, true}) {
      const int k = backward ? out : in;
      const int n = backward ? in : out;
      const auto one = normal_values(k, 2);
      std::vector<float> alone(static_cast<std::size_t>(n));
      const auto call = [&](int count, const float* x, float* y) {
        if (backward) {
          cpu_ops().linear_data_grad(ctx, {count, in, out, x, k, w.data(), y, n, false});
        } else {
          cpu_ops().linear(ctx, {count, in, out, x, k, w.data(), y, n, false});
        }
      };
      call(1, one.data(), alone.data());
      std::vector<float> y(static_cast<std::size_t>(rows * n));
      // Several copies at a time, so that sixteen calls visit every place.
      for (int first = 0; first < 16; ++first) {
        auto x = normal_values(std::int64_t{rows} * k, static_cast<std::uint64_t>(first + 3));
        for (int p = first; p < rows; p += 16) {
          std::copy(one.begin(), one.end(), x.begin() + std::ptrdiff_t{p} * k);
        }
        call(rows, x.data(), y.data());
        for (int p = first; p < rows; p += 16) {
          ASSERT_TRUE(same_bits(std::span<const float>(alone),
                                std::span<const float>(y).subspan(static_cast<std::size_t>(p * n),
                                                                  static_cast<std::size_t>(n))))
              << "row " << p << ", " << in << " to " << out << (backward ? " backward" : "");
        }
      }
    }
  }
}

TEST(WeightGradPlanTest, CoversAllRowsOnce) {
  for (const std::int64_t rows : {1, 63, 64, 65, 511, 512, 513, 4096, 9001}) {
    for (const std::int64_t out : {1, 127, 128, 129, 256, 1024, 5000}) {
      const auto plan = WeightGradPlan::make(rows, out);
      EXPECT_GE(plan.segments * plan.segment_rows, rows);
      EXPECT_LT((plan.segments - 1) * plan.segment_rows, rows);
      EXPECT_GE(plan.out_tiles * plan.tile_out, out);
      EXPECT_LE(plan.segments, WeightGradPlan::kTasks);
    }
  }
}

}  // namespace
}  // namespace paceline::ops
