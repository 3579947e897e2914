#include "ops/rms_norm/rms_norm_ref.hpp"

#include <ostream>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int rows, width;
  bool accumulate;
};
void PrintTo(const Shape& s, std::ostream* os) { *os << s.rows << "x" << s.width; }

constexpr float kEps = 1e-5F;

struct Outputs {
  std::vector<float> y, inv_rms, dx, dscale;
};

class RmsNormTest : public ::testing::TestWithParam<Shape> {
 protected:
  Shape s = GetParam();
  std::size_t rows = static_cast<std::size_t>(s.rows), width = static_cast<std::size_t>(s.width);
  std::vector<float> x = normal_values(s.rows * s.width, 1, 3.0);
  std::vector<float> scale = normal_values(s.width, 2);
  std::vector<float> dy = normal_values(s.rows * s.width, 3);
  std::vector<float> dx0 = normal_values(s.rows * s.width, 4);
  std::vector<float> dscale0 = normal_values(s.width, 5);

  Outputs run(Context& ctx) {
    Guarded<float> y(s.rows * s.width), r(s.rows), dx(dx0), dscale(dscale0);
    cpu_ops().rms_norm(ctx, {s.rows, s.width, kEps, x.data(), scale.data(), y.data(), r.data()});
    cpu_ops().rms_norm_grad(ctx, {s.rows, s.width, x.data(), scale.data(), r.data(), dy.data(),
                                  dx.data(), s.accumulate, dscale.data()});
    EXPECT_TRUE(y.intact() && r.intact() && dx.intact() && dscale.intact());
    return {y.vector(), r.vector(), dx.vector(), dscale.vector()};
  }

  template <typename T>
  RmsNormGradRef<T> grad_ref() {
    auto g = rms_norm_grad_ref<T>(rows, width, T{kEps}, to<T>(x), to<T>(scale), to<T>(dy));
    for (std::size_t i = 0; s.accumulate && i < dx0.size(); ++i) g.dx[i] += T{dx0[i]};
    for (std::size_t i = 0; i < width; ++i) g.dscale[i] += T{dscale0[i]};
    return g;
  }
};

TEST_P(RmsNormTest, MatchesReferenceAtEachThreadCount) {
  const auto runs = at_each_thread_count([&](Context& ctx) { return run(ctx); });
  for (const auto& r : runs) {
    EXPECT_TRUE(same_bits(runs[0].y, r.y));
    EXPECT_TRUE(same_bits(runs[0].inv_rms, r.inv_rms));
    EXPECT_TRUE(same_bits(runs[0].dx, r.dx));
    EXPECT_TRUE(same_bits(runs[0].dscale, r.dscale));
  }
  const double eps = kEps;
  EXPECT_TRUE(near_reference(runs[0].inv_rms, inv_rms_ref(rows, width, eps, to<double>(x)),
                             inv_rms_ref(rows, width, kEps, x)));
  EXPECT_TRUE(near_reference(runs[0].y,
                             rms_norm_ref(rows, width, eps, to<double>(x), to<double>(scale)),
                             rms_norm_ref(rows, width, kEps, x, scale)));
  const auto ref = grad_ref<double>();
  const auto naive = grad_ref<float>();
  EXPECT_TRUE(near_reference(runs[0].dx, ref.dx, naive.dx));
  EXPECT_TRUE(near_reference(runs[0].dscale, ref.dscale, naive.dscale));
}

INSTANTIATE_TEST_SUITE_P(Cpu, RmsNormTest,
                         ::testing::Values(Shape{0, 8, false}, Shape{1, 1, false},
                                           Shape{3, 7, true}, Shape{64, 128, false},
                                           Shape{129, 128, true}, Shape{701, 67, false},
                                           Shape{5, 20000, true}));

TEST(RmsNormGradientTest, MatchesCentralDifferences) {
  const auto x = to<double>(normal_values(3 * 5, 1));
  const auto scale = to<double>(normal_values(5, 2));
  const auto dy = to<double>(normal_values(3 * 5, 3));
  const double eps = 0.1;
  const auto g = rms_norm_grad_ref(3, 5, eps, x, scale, dy);
  EXPECT_TRUE(gradient_matches(
      [&](const auto& v) { return inner(rms_norm_ref(3, 5, eps, v, scale), dy); }, x, g.dx));
  EXPECT_TRUE(gradient_matches(
      [&](const auto& v) { return inner(rms_norm_ref(3, 5, eps, x, v), dy); }, scale, g.dscale));
}

TEST(RmsNormRowTest, MayWriteOverItsInputAndIgnoresThePlace) {
  pipeline::TaskPool pool(2);
  Context ctx(pool);
  constexpr int kRows = 150, kWidth = 77;
  const auto one = normal_values(kWidth, 1);
  const auto scale = normal_values(kWidth, 2);
  std::vector<float> x;
  for (int r = 0; r < kRows; ++r) x.insert(x.end(), one.begin(), one.end());
  std::vector<float> inv(kRows);
  cpu_ops().rms_norm(ctx, {kRows, kWidth, kEps, x.data(), scale.data(), x.data(), inv.data()});
  for (std::size_t i = kWidth; i < x.size(); ++i) ASSERT_EQ(x[i], x[i % kWidth]);
  EXPECT_NE(x[0], one[0]);
}

}  // namespace
}  // namespace paceline::ops
