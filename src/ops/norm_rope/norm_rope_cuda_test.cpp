// RMSNorm over heads and rotation on the GPU against the fp64 reference of the CPU op.
#include "ops/norm_rope/norm_rope_cuda.hpp"

#include <limits>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/norm_rope/norm_rope.hpp"
#include "ops/norm_rope/norm_rope_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr float kEps = 1e-5F;
constexpr double kBase = 10000.0;
constexpr std::int32_t kPositions = 200;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kUntouched = 7.5F;

struct Shape {
  int rows, heads, head_dim;
  int gap;  // between rows of x and dx
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.rows << "x" << s.heads << "x" << s.head_dim << "+" << s.gap;
}

struct Outputs {
  std::vector<float> y, inv_rms, dx, dscale;  // dense
};

template <typename T>
struct Problem {
  explicit Problem(Shape shape) : s(shape), width(s.heads * s.head_dim) {
    x = all_as<T>(normal_values(s.rows * width, 1, 2.0));
    scale = normal_values(width, 2);
    dy = all_as<T>(normal_values(s.rows * width, 3));
    for (int r = 0; r < s.rows; ++r) {
      positions.push_back(
          static_cast<std::int32_t>(random_below(kPositions, static_cast<std::uint64_t>(r), 9)));
    }
  }

  // Rows of x among values that must not be read, rows of dx among such that must not be written.
  Outputs run() const {
    const std::int64_t stride = width + s.gap;
    std::vector<T> spread(static_cast<std::size_t>(s.rows * stride), as<T>(kNan));
    for (int r = 0; r < s.rows; ++r) {
      std::copy_n(x.begin() + std::ptrdiff_t{r} * width, width, spread.begin() + r * stride);
    }
    const RopeTable rope = rope_table(kPositions, s.head_dim, kBase);
    const DeviceArray<float> cos(rope.cos), sin(rope.sin), d_scale(scale);
    const DeviceArray<std::int32_t> d_positions(positions);
    const DeviceArray<T> d_x(spread), d_dy(dy), y(std::vector<T>(x.size(), as<T>(kNan)));
    const DeviceArray<T> dx(std::vector<T>(spread.size(), as<T>(kUntouched)));
    const DeviceArray<float> inv_rms(std::vector<float>(positions.size(), kNan));
    const DeviceArray<float> dscale(std::vector<float>(scale.size(), kNan));
    const DeviceArray<float> partials(std::vector<float>(kNormPartials * scale.size(), kNan));
    const device::Stream stream("test");
    const RopeTableCuda table{cos.data(), sin.data()};
    norm_rope_cuda<T>(stream,
                      {s.rows, s.heads, s.head_dim, kEps, d_x.data(), stride, d_scale.data(),
                       d_positions.data(), table, y.data(), inv_rms.data()});
    norm_rope_grad_cuda<T>(stream, {s.rows, s.heads, s.head_dim, d_x.data(), stride, d_scale.data(),
                                    d_positions.data(), table, inv_rms.data(), d_dy.data(),
                                    dx.data(), stride, dscale.data(), partials.data()});
    stream.synchronize();
    partials.read();
    Outputs out{all_as_float(y.read()), inv_rms.read(), {}, dscale.read()};
    const auto rows = all_as_float(dx.read());
    for (int r = 0; r < s.rows; ++r) {
      const auto row = rows.begin() + r * stride;
      out.dx.insert(out.dx.end(), row, row + width);
      for (auto past = row + width; past < row + stride; ++past) EXPECT_EQ(*past, kUntouched);
    }
    return out;
  }

  template <typename F>
  std::vector<F> values_ref() const {
    return norm_rope_ref<F>(static_cast<std::size_t>(s.heads), static_cast<std::size_t>(s.head_dim),
                            kBase, F{kEps}, positions, to<F>(all_as_float(x)), to<F>(scale));
  }
  template <typename F>
  RmsNormGradRef<F> grad_ref() const {
    return norm_rope_grad_ref<F>(static_cast<std::size_t>(s.heads),
                                 static_cast<std::size_t>(s.head_dim), kBase, F{kEps}, positions,
                                 to<F>(all_as_float(x)), to<F>(scale), to<F>(all_as_float(dy)));
  }

  Shape s;
  int width;
  std::vector<T> x, dy;
  std::vector<float> scale;
  std::vector<std::int32_t> positions;
};

// The naive reference's rounding to T is part of the error that is natural.
template <typename T>
std::vector<float> rounded(const std::vector<float>& v) {
  return all_as_float(all_as<T>(v));
}

class GpuNormRope : public device::testing::GpuTest, public ::testing::WithParamInterface<Shape> {};

template <typename T>
void expect_reference(Shape s) {
  const Problem<T> p(s);
  const auto got = p.run();
  const std::size_t rows = p.positions.size(), width = p.scale.size();
  const auto x = all_as_float(p.x);
  EXPECT_TRUE(near_reference(got.inv_rms, inv_rms_ref<double>(rows, width, kEps, to<double>(x)),
                             inv_rms_ref(rows, width, kEps, x)));
  EXPECT_TRUE(near_reference(got.y, p.template values_ref<double>(),
                             rounded<T>(p.template values_ref<float>())));
  const auto ref = p.template grad_ref<double>();
  const auto naive = p.template grad_ref<float>();
  EXPECT_TRUE(near_reference(got.dx, ref.dx, rounded<T>(naive.dx)));
  EXPECT_TRUE(near_reference(got.dscale, ref.dscale, naive.dscale));
}

TEST_P(GpuNormRope, MatchesReference) {
  expect_reference<float>(GetParam());
  expect_reference<BFloat16>(GetParam());
}

TEST_P(GpuNormRope, HasTheSameBitsAgain) {
  const Problem<BFloat16> p(GetParam());
  const auto a = p.run(), b = p.run();
  EXPECT_TRUE(same_bits(a.y, b.y));
  EXPECT_TRUE(same_bits(a.inv_rms, b.inv_rms));
  EXPECT_TRUE(same_bits(a.dx, b.dx));
  EXPECT_TRUE(same_bits(a.dscale, b.dscale));
}

INSTANTIATE_TEST_SUITE_P(
    Gpu, GpuNormRope,
    ::testing::Values(Shape{0, 2, 32, 0}, Shape{1, 1, 16, 0}, Shape{7, 3, 16, 8},
                      Shape{129, 2, 128, 768}, Shape{67, 4, 128, 512}, Shape{33, 5, 64, 0},
                      Shape{65, 3, 48, 16}, Shape{17, 16, 64, 0}, Shape{5, 20, 128, 1024},
                      Shape{3, 16, 256, 8}, Shape{3, 64, 128, 0}, Shape{7001, 1, 32, 0},
                      Shape{4301, 3, 128, 0}, Shape{1703, 6, 128, 0}, Shape{601, 33, 64, 0}));

class GpuNormRopeRows : public GpuNormRope {};

TEST_P(GpuNormRopeRows, AreTheSameAtAnyPlace) {
  const Problem<BFloat16> p(GetParam());
  const int first = p.s.rows - 3;
  Problem<BFloat16> part = p;
  part.s.rows = 3;
  const auto at = std::ptrdiff_t{first} * p.width;
  for (auto* v : {&part.x, &part.dy}) v->erase(v->begin(), v->begin() + at);
  part.positions.erase(part.positions.begin(), part.positions.begin() + first);
  const auto all = p.run(), last = part.run();
  EXPECT_TRUE(same_bits(std::vector<float>(all.y.begin() + at, all.y.end()), last.y));
  EXPECT_TRUE(same_bits(std::vector<float>(all.dx.begin() + at, all.dx.end()), last.dx));
}

TEST_P(GpuNormRopeRows, ShowWhatIsNotFiniteAndHideItFromOthers) {
  const Problem<BFloat16> clean(GetParam());
  const auto expected = clean.run();
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    auto p = clean;
    const auto width = static_cast<std::size_t>(p.width);
    const std::size_t at = width + width / 2 + 1;  // of row 1
    p.x[at] = as<BFloat16>(bad);
    const auto got = p.run();
    EXPECT_TRUE(std::isnan(got.y[at]) && std::isnan(got.dx[at]));
    EXPECT_TRUE(std::isnan(got.dscale[at % width]));
    for (std::size_t i = 0; i < got.y.size(); ++i) {
      if (i / width == 1) continue;
      ASSERT_EQ(got.y[i], expected.y[i]);
      ASSERT_EQ(got.dx[i], expected.dx[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuNormRopeRows,
                         ::testing::Values(Shape{7, 1, 16, 0}, Shape{35, 2, 128, 256},
                                           Shape{41, 4, 128, 0}, Shape{6, 8, 128, 0},
                                           Shape{4, 32, 128, 0}));

}  // namespace
}  // namespace paceline::ops
