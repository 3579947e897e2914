// RMSNorm on the GPU against the fp64 reference of the CPU op.
#include "ops/rms_norm/rms_norm_cuda.hpp"

#include <limits>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/rms_norm/rms_norm_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr float kEps = 1e-5F;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kExtraRows = 5;
constexpr std::int32_t kExtraFirst = 3;

enum class More { kNothing, kResidual, kInPlace, kExtra, kExtraAndResidual };

struct Shape {
  int rows, width;
};
void PrintTo(const Shape& s, std::ostream* os) { *os << s.rows << "x" << s.width; }

struct Outputs {
  std::vector<float> y, inv_rms, dx, dscale;
};

::testing::AssertionResult all_same_bits(const Outputs& a, const Outputs& b) {
  const std::pair<const std::vector<float>&, const std::vector<float>&> pairs[] = {
      {a.y, b.y}, {a.inv_rms, b.inv_rms}, {a.dx, b.dx}, {a.dscale, b.dscale}};
  for (const auto& [x, y] : pairs) {
    const auto same = same_bits(x, y);
    if (!same) return same;
  }
  return ::testing::AssertionSuccess();
}

// Inputs, as T holds them. Some rows get one of the extra rows, several may get the same.
template <typename T>
struct Problem {
  explicit Problem(Shape shape) : s(shape) {
    const int n = s.rows * s.width;
    x = all_as<T>(normal_values(n, 1, 3.0));
    scale = normal_values(s.width, 2);
    dy = all_as<T>(normal_values(n, 3));
    residual = all_as<T>(normal_values(n, 4));
    extra_dy = all_as<T>(normal_values(kExtraRows * s.width, 5));
    extra_residual = all_as<T>(normal_values(kExtraRows * s.width, 6));
    for (int r = 0; r < s.rows; ++r) {
      const auto pick =
          random_below(kExtraFirst + kExtraRows + 1, static_cast<std::uint64_t>(r), 7);
      index.push_back(static_cast<std::int32_t>(pick) - 1);
    }
  }

  Outputs run(More more) const {
    const DeviceArray<T> d_x(x), d_dy(dy), d_residual(residual), d_extra_dy(extra_dy),
        d_extra_residual(extra_residual);
    const DeviceArray<float> d_scale(scale);
    const DeviceArray<std::int32_t> d_index(index);
    const DeviceArray<T> y(std::vector<T>(x.size(), as<T>(kNan)));
    const DeviceArray<T> dx(std::vector<T>(x.size(), as<T>(kNan)));
    const DeviceArray<float> inv_rms(std::vector<float>(index.size(), kNan));
    const DeviceArray<float> dscale(std::vector<float>(scale.size(), kNan));
    const DeviceArray<float> partials(std::vector<float>(kNormPartials * scale.size(), kNan));
    const device::Stream stream("test");
    rms_norm_cuda<T>(stream,
                     {s.rows, s.width, kEps, d_x.data(), d_scale.data(), y.data(), inv_rms.data()});
    RmsNormGradCudaArgs<T> g;
    g.rows = s.rows;
    g.width = s.width;
    g.x = d_x.data();
    g.scale = d_scale.data();
    g.inv_rms = inv_rms.data();
    g.dy = d_dy.data();
    g.dx = more == More::kInPlace ? d_residual.data() : dx.data();
    if (has_residual(more)) g.residual = d_residual.data();
    if (has_extra(more)) {
      g.extra = {d_index.data(), kExtraFirst, d_extra_dy.data(), d_extra_residual.data()};
    }
    g.dscale = dscale.data();
    g.partials = partials.data();
    rms_norm_grad_cuda<T>(stream, g);
    stream.synchronize();
    partials.read();
    return {all_as_float(y.read()), inv_rms.read(),
            all_as_float((more == More::kInPlace ? d_residual : dx).read()), dscale.read()};
  }

  template <typename F>
  RmsNormGradRef<F> grad_ref(More more) const {
    auto g = to<F>(all_as_float(dy));
    const auto add = [&](std::vector<F>& v, const std::vector<T>& rows) {
      for (std::size_t i = 0; has_extra(more) && i < v.size(); ++i) {
        const std::int32_t row = index[i / scale.size()] - kExtraFirst;
        if (row < 0) continue;
        v[i] += F{as_float(rows[static_cast<std::size_t>(row) * scale.size() + i % scale.size()])};
      }
    };
    add(g, extra_dy);
    auto ref = rms_norm_grad_ref<F>(index.size(), scale.size(), F{kEps}, to<F>(all_as_float(x)),
                                    to<F>(scale), g);
    for (std::size_t i = 0; has_residual(more) && i < g.size(); ++i) {
      ref.dx[i] += F{as_float(residual[i])};
    }
    add(ref.dx, extra_residual);
    return ref;
  }

  static bool has_residual(More more) { return more != More::kNothing && more != More::kExtra; }
  static bool has_extra(More more) { return more >= More::kExtra; }

  Shape s;
  std::vector<T> x, dy, residual, extra_dy, extra_residual;
  std::vector<float> scale;
  std::vector<std::int32_t> index;
};

// The naive reference's rounding to T is part of the error that is natural.
template <typename T>
std::vector<float> rounded(const std::vector<float>& v) {
  return all_as_float(all_as<T>(v));
}

class GpuRmsNorm : public device::testing::GpuTest, public ::testing::WithParamInterface<Shape> {};

template <typename T>
void expect_reference(Shape s) {
  const Problem<T> p(s);
  const auto x = all_as_float(p.x);
  const std::size_t rows = p.index.size(), width = p.scale.size();
  const auto forward = p.run(More::kNothing);
  EXPECT_TRUE(near_reference(forward.inv_rms, inv_rms_ref<double>(rows, width, kEps, to<double>(x)),
                             inv_rms_ref(rows, width, kEps, x)));
  EXPECT_TRUE(near_reference(
      forward.y, rms_norm_ref<double>(rows, width, kEps, to<double>(x), to<double>(p.scale)),
      rounded<T>(rms_norm_ref(rows, width, kEps, x, p.scale))));
  for (const More more : {More::kNothing, More::kResidual, More::kExtra, More::kExtraAndResidual}) {
    const auto got = p.run(more);
    const auto ref = p.template grad_ref<double>(more);
    const auto naive = p.template grad_ref<float>(more);
    EXPECT_TRUE(near_reference(got.dx, ref.dx, rounded<T>(naive.dx))) << static_cast<int>(more);
    EXPECT_TRUE(near_reference(got.dscale, ref.dscale, naive.dscale)) << static_cast<int>(more);
  }
}

TEST_P(GpuRmsNorm, MatchesReference) {
  expect_reference<float>(GetParam());
  expect_reference<BFloat16>(GetParam());
}

TEST_P(GpuRmsNorm, HasTheSameBitsAgainAndOverItsResidual) {
  const Problem<float> p(GetParam());
  const Problem<BFloat16> half(GetParam());
  EXPECT_TRUE(all_same_bits(p.run(More::kResidual), p.run(More::kResidual)));
  EXPECT_TRUE(all_same_bits(p.run(More::kResidual), p.run(More::kInPlace)));
  EXPECT_TRUE(all_same_bits(half.run(More::kResidual), half.run(More::kInPlace)));
  EXPECT_TRUE(all_same_bits(half.run(More::kExtraAndResidual), half.run(More::kExtraAndResidual)));
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuRmsNorm,
                         ::testing::Values(Shape{0, 64}, Shape{1, 8}, Shape{7, 64}, Shape{129, 128},
                                           Shape{65, 256}, Shape{31, 264}, Shape{67, 512},
                                           Shape{33, 1024}, Shape{5, 1032}, Shape{3, 2560},
                                           Shape{3, 8192}, Shape{9001, 24}, Shape{4301, 264},
                                           Shape{1703, 776}, Shape{601, 1032}));

class GpuRmsNormRows : public GpuRmsNorm {};

// Rows from `first` on as a problem of their own.
template <typename T>
Problem<T> rows_from(const Problem<T>& p, int first) {
  Problem<T> part = p;
  part.s.rows -= first;
  const auto at = std::ptrdiff_t{first} * p.s.width;
  for (auto* v : {&part.x, &part.dy, &part.residual}) v->erase(v->begin(), v->begin() + at);
  part.index.erase(part.index.begin(), part.index.begin() + first);
  return part;
}

TEST_P(GpuRmsNormRows, AreTheSameAtAnyPlace) {
  const Problem<BFloat16> p(GetParam());
  const auto all = p.run(More::kExtraAndResidual);
  const int first = p.s.rows - 3;
  const auto part = rows_from(p, first).run(More::kExtraAndResidual);
  const auto at = std::ptrdiff_t{first} * p.s.width;
  EXPECT_TRUE(same_bits(std::vector<float>(all.y.begin() + at, all.y.end()), part.y));
  EXPECT_TRUE(same_bits(std::vector<float>(all.dx.begin() + at, all.dx.end()), part.dx));
}

TEST_P(GpuRmsNormRows, ShowWhatIsNotFiniteAndHideItFromOthers) {
  const Problem<BFloat16> clean(GetParam());
  const auto expected = clean.run(More::kResidual);
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    auto p = clean;
    const auto width = static_cast<std::size_t>(p.s.width);
    const std::size_t at = width + width / 2 + 1;  // of row 1
    p.x[at] = as<BFloat16>(bad);
    const auto got = p.run(More::kResidual);
    EXPECT_TRUE(std::isnan(got.y[at]) && std::isnan(got.dx[at]));
    EXPECT_TRUE(std::isnan(got.dscale[at % width]));
    for (std::size_t i = 0; i < got.y.size(); ++i) {
      if (i / width == 1) continue;
      ASSERT_EQ(got.y[i], expected.y[i]);
      ASSERT_EQ(got.dx[i], expected.dx[i]);
    }
  }
}

TEST_P(GpuRmsNormRows, OfZerosStayZeros) {
  Problem<BFloat16> p(GetParam());
  std::fill(p.x.begin(), p.x.end(), BFloat16{});
  std::fill(p.dy.begin(), p.dy.end(), BFloat16{});
  const auto got = p.run(More::kNothing);
  for (const auto* v : {&got.y, &got.dx, &got.dscale}) {
    for (const float value : *v) ASSERT_EQ(value, 0.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuRmsNormRows,
                         ::testing::Values(Shape{7, 8}, Shape{41, 512}, Shape{6, 1024},
                                           Shape{4, 4096}));

}  // namespace
}  // namespace paceline::ops
