// The losses on the GPU against the fp64 reference of the CPU op.
#include "ops/loss/loss_cuda.hpp"

#include <cmath>
#include <limits>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/loss/loss_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kScale = 0.75F;

struct Shape {
  int candidates, capacity, actions, heads, stride;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.candidates << " of " << s.capacity << "x" << s.actions << "+" << s.heads << " in "
      << s.stride;
}

struct Outputs {
  std::vector<float> d_y;
  double loss;
};

// Heads alternate between the two regressions; the last action and, of three, the last head are not
// trained. What must not be read is NaN: those columns, columns past the outputs, rows past the
// candidates.
struct Problem {
  explicit Problem(Shape shape) : s(shape) {
    y = normal_values(std::int64_t{s.capacity} * s.stride, 1, 3.0);
    for (int a = 0; a < s.actions; ++a) {
      bits.push_back(63 - 2 * a);
      weights.push_back(a > 0 && a == s.actions - 1 ? 0.0F : 0.5F + static_cast<float>(a));
    }
    for (int c = 0; c < s.capacity; ++c) {
      labels.push_back(
          CounterRng(test_seed(), RngStream::kTest).bits(static_cast<std::uint64_t>(c), 2));
    }
    for (int h = 0; h < s.heads; ++h) {
      targets.push_back(normal_values(s.capacity, static_cast<std::uint64_t>(h + 5), 20.0));
      heads.push_back({h % 2 == 0 ? RegressionLoss::kSigmoidMae : RegressionLoss::kTweedie,
                       h % 2 == 0 ? 30.0F : 12.0F, h == 2 ? 0.0F : 0.1F, nullptr});
    }
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (row(i) >= s.candidates || weight(column(i)) == 0.0F) y[i] = kNan;
    }
    for (auto& t : targets) std::fill(t.begin() + s.candidates, t.end(), kNan);
  }

  int row(std::size_t i) const { return static_cast<int>(i) / s.stride; }
  int column(std::size_t i) const { return static_cast<int>(i) % s.stride; }
  float weight(int o) const {
    if (o >= s.actions + s.heads) return 0.0F;
    return o < s.actions ? weights[static_cast<std::size_t>(o)]
                         : heads[static_cast<std::size_t>(o - s.actions)].weight;
  }

  template <typename T>
  Outputs run() const {
    std::vector<DeviceArray<float>> d_targets;
    auto d_heads = heads;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      d_targets.emplace_back(targets[h]);
      d_heads[h].target = d_targets[h].data();
    }
    const DeviceArray<RegressionHead> head_array(d_heads);
    const DeviceArray<std::int32_t> d_bits(bits), count(std::vector<std::int32_t>{s.candidates});
    const DeviceArray<float> d_weights(weights), d_y_values(y);
    const DeviceArray<std::uint64_t> d_labels(labels);
    const DeviceArray<T> d_y(std::vector<T>(y.size(), as<T>(kNan)));
    const DeviceArray<double> partials(std::vector<double>(kLossPartials, NAN));
    const DeviceArray<double> loss(std::vector<double>{NAN});
    const device::Stream stream("test");
    loss_cuda<T>(stream, {s.capacity,
                          count.data(),
                          {s.actions, d_bits.data(), d_weights.data(), s.heads, head_array.data()},
                          kScale,
                          d_y_values.data(),
                          s.stride,
                          d_labels.data(),
                          d_y.data(),
                          partials.data(),
                          loss.data()});
    stream.synchronize();
    partials.read();
    return {all_as_float(d_y.read()), loss.read()[0]};
  }

  // As LossRef, with the gradient by y in the rows and columns of y.
  template <typename F>
  LossRef<F> ref() const {
    const int outputs = s.actions + s.heads;
    std::vector<F> logits;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (row(i) >= s.candidates || column(i) >= outputs) continue;
      const bool read = weight(column(i)) != 0.0F;
      logits.push_back(read ? F{y[i]} * (column(i) < s.actions ? F{kScale} : F{1}) : F{0});
    }
    auto host_heads = heads;
    for (std::size_t h = 0; h < heads.size(); ++h) host_heads[h].target = targets[h].data();
    LossArgs args;
    args.candidates = s.candidates;
    args.actions = s.actions;
    args.bits = bits;
    args.weights = weights;
    args.heads = host_heads;
    args.labels = labels.data();
    auto out = loss_ref<F>(args, logits);
    std::vector<F> d_y(y.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (row(i) >= s.candidates || column(i) >= outputs) continue;
      d_y[i] = out.d_logits[next++] * (column(i) < s.actions ? F{kScale} : F{1});
    }
    out.d_logits = d_y;
    return out;
  }

  Shape s;
  std::vector<float> y, weights;
  std::vector<std::int32_t> bits;
  std::vector<std::uint64_t> labels;
  std::vector<std::vector<float>> targets;
  std::vector<RegressionHead> heads;
};

class GpuLoss : public device::testing::GpuTest, public ::testing::WithParamInterface<Shape> {};

template <typename T>
void expect_reference(const Problem& p) {
  const auto got = p.run<T>();
  const auto ref = p.ref<double>();
  EXPECT_TRUE(
      near_reference(got.d_y, ref.d_logits, all_as_float(all_as<T>(p.ref<float>().d_logits))));
  EXPECT_NEAR(got.loss, ref.loss, 1e-6 * ref.loss);
  for (std::size_t i = 0; i < got.d_y.size(); ++i) {
    const bool counts = p.row(i) < p.s.candidates && p.weight(p.column(i)) != 0.0F;
    if (!counts) {
      ASSERT_EQ(got.d_y[i], 0.0F) << i;
    }
  }
  const auto again = p.run<T>();
  EXPECT_TRUE(same_bits(got.d_y, again.d_y));
  EXPECT_EQ(got.loss, again.loss);
}

TEST_P(GpuLoss, MatchesReferenceAndIsTheSameAgain) {
  const Problem p(GetParam());
  expect_reference<float>(p);
  expect_reference<BFloat16>(p);
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLoss,
                         ::testing::Values(Shape{0, 0, 3, 1, 8}, Shape{0, 5, 3, 1, 8},
                                           Shape{1, 1, 1, 0, 1}, Shape{1, 3, 0, 2, 8},
                                           Shape{255, 256, 3, 2, 16}, Shape{257, 400, 2, 0, 2},
                                           Shape{1003, 1003, 5, 3, 8},
                                           Shape{9001, 9100, 12, 4, 24}));

// One action or head and one candidate.
class GpuLossEdges : public device::testing::GpuTest {
 protected:
  static Outputs action(float y, std::uint64_t label) {
    Problem p({1, 1, 1, 0, 1});
    p.y = {y};
    p.bits = {0};
    p.weights = {1.0F};
    p.labels = {label};
    return p.run<float>();
  }
  static Outputs regression(RegressionLoss kind, float y, float target) {
    Problem p({1, 1, 0, 1, 1});
    p.y = {y};
    p.heads[0].loss = kind;
    p.targets[0] = {target};
    return p.run<float>();
  }
};

TEST_F(GpuLossEdges, LargeLogitsKeepTheirDigits) {
  EXPECT_EQ(action(1e4F, 0).loss, 0.75e4);
  EXPECT_EQ(action(-1e4F, 1).loss, 0.75e4);
  EXPECT_EQ(action(1e4F, 0).d_y[0], kScale);
  const double small = std::exp(-15.0);
  EXPECT_NEAR(action(-20.0F, 0).loss, small, 1e-6 * small);
  EXPECT_NEAR(action(20.0F, 1).loss, small, 1e-6 * small);
  EXPECT_NEAR(action(20.0F, 1).d_y[0], -0.75 * small, 1e-6 * small);
}

TEST_F(GpuLossEdges, NonFiniteIsSeen) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const std::uint64_t label : {0U, 1U}) {
      EXPECT_FALSE(std::isfinite(action(bad, label).loss)) << bad << " " << label;
    }
    for (const auto kind : {RegressionLoss::kSigmoidMae, RegressionLoss::kTweedie}) {
      EXPECT_FALSE(std::isfinite(regression(kind, bad, 1.0F).loss)) << bad;
      EXPECT_FALSE(std::isfinite(regression(kind, 0.5F, bad).loss)) << bad;
    }
  }
}

TEST_F(GpuLossEdges, TweedieAtItsFloorHasNoSlope) {
  const auto far = regression(RegressionLoss::kTweedie, -40.0F, 2.0F);
  EXPECT_EQ(far.d_y[0], 0.0F);
  const double mu = 1e-6, gap = std::sqrt(mu) - std::sqrt(2.0);
  EXPECT_NEAR(far.loss, 0.1 * 4.0 * gap * gap / std::sqrt(mu), 1e-3);
}

using GpuLossDeathTest = device::testing::GpuDeathTest;
TEST_F(GpuLossDeathTest, ARowWithoutRoomForAllOutputsAborts) {
  EXPECT_DEATH(Problem({1, 1, 2, 1, 2}).run<float>(), "a column for every output");
}

}  // namespace
}  // namespace paceline::ops
