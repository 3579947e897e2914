#include "ops/norm_rope/norm_rope_ref.hpp"

#include <ostream>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int rows, heads, head_dim;
  int gap;  // between rows of x and dx
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.rows << "x" << s.heads << "x" << s.head_dim;
}

constexpr float kEps = 1e-5F;
constexpr double kBase = 10000.0;
constexpr std::int32_t kPositions = 200;

struct Outputs {
  std::vector<float> y, dx, dscale;
};

class NormRopeTest : public ::testing::TestWithParam<Shape> {
 protected:
  NormRopeTest() {
    for (int r = 0; r < s.rows; ++r) {
      positions.push_back(
          static_cast<std::int32_t>(random_below(kPositions, static_cast<std::uint64_t>(r), 9)));
    }
  }

  Shape s = GetParam();
  std::size_t heads = static_cast<std::size_t>(s.heads), dim = static_cast<std::size_t>(s.head_dim);
  int width = s.heads * s.head_dim, stride = width + s.gap;
  std::vector<float> x = normal_values(s.rows * width, 1, 2.0);
  std::vector<float> scale = normal_values(width, 2);
  std::vector<float> dy = normal_values(s.rows * width, 3);
  std::vector<float> dscale0 = normal_values(width, 4);
  std::vector<std::int32_t> positions;
  RopeTable table = rope_table(kPositions, s.head_dim, kBase);

  Outputs run(Context& ctx) {
    std::vector<float> spread(static_cast<std::size_t>(s.rows * stride), NAN);
    for (int r = 0; r < s.rows; ++r) {
      std::copy_n(x.begin() + std::ptrdiff_t{r} * width, width,
                  spread.begin() + std::ptrdiff_t{r} * stride);
    }
    Guarded<float> y(s.rows * width), inv(s.rows), dscale(dscale0);
    Guarded<float> dx(std::vector<float>(spread.size(), 7.5F));
    cpu_ops().norm_rope(ctx, {s.rows, s.heads, s.head_dim, kEps, spread.data(), stride,
                              scale.data(), positions.data(), &table, y.data(), inv.data()});
    cpu_ops().norm_rope_grad(
        ctx, {s.rows, s.heads, s.head_dim, spread.data(), stride, scale.data(), positions.data(),
              &table, inv.data(), dy.data(), dx.data(), stride, dscale.data()});
    EXPECT_TRUE(y.intact() && inv.intact() && dx.intact() && dscale.intact());
    Outputs out{y.vector(), {}, dscale.vector()};
    for (int r = 0; r < s.rows; ++r) {
      const float* row = dx.data() + std::ptrdiff_t{r} * stride;
      out.dx.insert(out.dx.end(), row, row + width);
      for (int i = width; i < stride; ++i) EXPECT_EQ(row[i], 7.5F);
    }
    return out;
  }

  template <typename T>
  RmsNormGradRef<T> grad_ref() {
    auto g = norm_rope_grad_ref<T>(heads, dim, kBase, T{kEps}, positions, to<T>(x), to<T>(scale),
                                   to<T>(dy));
    for (std::size_t i = 0; i < g.dscale.size(); ++i) g.dscale[i] += T{dscale0[i]};
    return g;
  }
};

TEST_P(NormRopeTest, MatchesReferenceAtEachThreadCount) {
  const auto runs = at_each_thread_count([&](Context& ctx) { return run(ctx); });
  for (const auto& r : runs) {
    EXPECT_TRUE(same_bits(runs[0].y, r.y));
    EXPECT_TRUE(same_bits(runs[0].dx, r.dx));
    EXPECT_TRUE(same_bits(runs[0].dscale, r.dscale));
  }
  EXPECT_TRUE(near_reference(
      runs[0].y,
      norm_rope_ref<double>(heads, dim, kBase, kEps, positions, to<double>(x), to<double>(scale)),
      norm_rope_ref<float>(heads, dim, kBase, kEps, positions, x, scale)));
  const auto ref = grad_ref<double>();
  const auto naive = grad_ref<float>();
  EXPECT_TRUE(near_reference(runs[0].dx, ref.dx, naive.dx));
  EXPECT_TRUE(near_reference(runs[0].dscale, ref.dscale, naive.dscale));
}

INSTANTIATE_TEST_SUITE_P(Cpu, NormRopeTest,
                         ::testing::Values(Shape{0, 1, 8, 0}, Shape{1, 1, 2, 0}, Shape{5, 3, 6, 2},
                                           Shape{64, 2, 64, 128}, Shape{129, 1, 64, 0},
                                           Shape{301, 2, 22, 5}));

TEST(NormRopeGradientTest, MatchesCentralDifferences) {
  const std::vector<std::int32_t> positions{0, 3, 11};
  const auto x = to<double>(normal_values(3 * 8, 1));
  const auto scale = to<double>(normal_values(8, 2));
  const auto dy = to<double>(normal_values(3 * 8, 3));
  const auto f = [&](const auto& a, const auto& b) {
    return inner(norm_rope_ref(2, 4, kBase, 0.1, positions, a, b), dy);
  };
  const auto g = norm_rope_grad_ref(2, 4, kBase, 0.1, positions, x, scale, dy);
  EXPECT_TRUE(gradient_matches([&](const auto& v) { return f(v, scale); }, x, g.dx));
  EXPECT_TRUE(gradient_matches([&](const auto& v) { return f(x, v); }, scale, g.dscale));
}

TEST(NormRopeDeathTest, RefusesAPositionBeyondTheTable) {
  const RopeTable table = rope_table(4, 8, kBase);
  const std::vector<float> x(8, 1.0F), scale(8, 1.0F);
  std::vector<float> y(8), inv(1);
  const std::int32_t position = 4;
  EXPECT_DEATH(
      {
        pipeline::TaskPool pool(1);
        Context ctx(pool);
        cpu_ops().norm_rope(ctx, {1, 1, 8, kEps, x.data(), 8, scale.data(), &position, &table,
                                  y.data(), inv.data()});
      },
      "the table covers every position");
}

}  // namespace
}  // namespace paceline::ops
