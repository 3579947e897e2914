#include "ops/loss/loss_ref.hpp"

#include <ostream>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int candidates, actions, heads;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.candidates << "x" << s.actions << "+" << s.heads;
}

// A loss with its data; heads alternate between the two regressions.
struct Problem {
  explicit Problem(Shape s)
      : logits(normal_values(std::int64_t{s.candidates} * (s.actions + s.heads), 1, 3.0)) {
    for (int a = 0; a < s.actions; ++a) {
      bits.push_back(63 - 2 * a);
      weights.push_back(0.5F + static_cast<float>(a));
    }
    for (int c = 0; c < s.candidates; ++c) {
      labels.push_back(
          CounterRng(test_seed(), RngStream::kTest).bits(static_cast<std::uint64_t>(c), 2));
    }
    for (int h = 0; h < s.heads; ++h) {
      auto t = normal_values(s.candidates, static_cast<std::uint64_t>(h + 5), 20.0);
      targets.push_back(std::move(t));
      heads.push_back({h % 2 == 0 ? RegressionLoss::kSigmoidMae : RegressionLoss::kTweedie,
                       h % 2 == 0 ? 30.0F : 12.0F, 0.1F, nullptr});
    }
    for (std::size_t h = 0; h < heads.size(); ++h) heads[h].target = targets[h].data();
    args.candidates = s.candidates;
    args.actions = s.actions;
    args.bits = bits;
    args.weights = weights;
    args.heads = heads;
    args.logits = logits.data();
    args.labels = labels.data();
  }
  Problem(const Problem&) = delete;

  std::vector<float> logits, weights;
  std::vector<int> bits;
  std::vector<std::uint64_t> labels;
  std::vector<std::vector<float>> targets;
  std::vector<RegressionHead> heads;
  LossArgs args;
};

struct Outputs {
  std::vector<float> d_logits;
  std::vector<double> by_output;  // then the loss
};

class LossTest : public ::testing::TestWithParam<Shape> {};

TEST_P(LossTest, MatchesReferenceAtEachThreadCount) {
  Problem p(GetParam());
  const auto outputs = static_cast<std::int64_t>(p.bits.size() + p.heads.size());
  const auto runs = at_each_thread_count([&](Context& ctx) {
    Guarded<float> d(static_cast<std::int64_t>(p.logits.size()));
    Guarded<double> by(outputs);
    LossArgs args = p.args;
    const double loss_only = cpu_ops().loss(ctx, args);
    args.d_logits = d.data();
    args.by_output = by.data();
    const double loss = cpu_ops().loss(ctx, args);
    EXPECT_EQ(loss, loss_only);
    EXPECT_TRUE(d.intact() && by.intact());
    auto all = by.vector();
    all.push_back(loss);
    return Outputs{d.vector(), all};
  });
  auto ref = loss_ref<double>(p.args, to<double>(p.logits));
  const auto naive = loss_ref<float>(p.args, p.logits);
  ref.by_output.push_back(ref.loss);
  for (const auto& r : runs) {
    EXPECT_TRUE(same_bits(runs[0].d_logits, r.d_logits));
    EXPECT_TRUE(same_bits(runs[0].by_output, r.by_output));
  }
  EXPECT_TRUE(near_reference(runs[0].d_logits, ref.d_logits, naive.d_logits));
  for (std::size_t o = 0; o < ref.by_output.size(); ++o) {
    EXPECT_NEAR(runs[0].by_output[o], ref.by_output[o], 2e-7 * std::abs(ref.by_output[o]));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LossTest,
                         ::testing::Values(Shape{0, 3, 1}, Shape{1, 1, 0}, Shape{1, 0, 2},
                                           Shape{255, 3, 2}, Shape{256, 2, 0}, Shape{257, 1, 1},
                                           Shape{1003, 5, 3}));

TEST(LossGradientTest, MatchesCentralDifferences) {
  Problem p({40, 2, 2});
  const auto z = to<double>(p.logits);
  const auto g = loss_ref<double>(p.args, z);
  EXPECT_TRUE(gradient_matches([&](const auto& v) { return loss_ref<double>(p.args, v).loss; }, z,
                               g.d_logits, 1e-6, 1e-8));
}

TEST(LossRefTest, OfZeroTweedieTargetIsFourRootsOfMu) {
  // mu = cap tanh(softplus(z) / cap): t = 0 leaves 4 sqrt(mu).
  const double mu = 12.0 * std::tanh(std::log1p(std::exp(0.3)) / 12.0);
  EXPECT_NEAR(tweedie_ref(0.3, 0.0, 12.0), 4.0 * std::sqrt(mu), 1e-12);
  EXPECT_NEAR(tweedie_ref(0.3, mu, 12.0), 0.0, 1e-12);
}

class LossEdgeTest : public ::testing::Test {
 protected:
  double loss(std::vector<float> logits, std::vector<std::uint64_t> labels,
              std::vector<float> weights) {
    std::vector<int> bits(weights.size());
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<int>(i);
    d.assign(logits.size(), 99.0F);
    LossArgs args;
    args.candidates = static_cast<std::int64_t>(labels.size());
    args.actions = static_cast<int>(weights.size());
    args.bits = bits;
    args.weights = weights;
    args.logits = logits.data();
    args.labels = labels.data();
    args.d_logits = d.data();
    return cpu_ops().loss(ctx, args);
  }
  pipeline::TaskPool pool{1};
  Context ctx{pool};
  std::vector<float> d;
};

TEST_F(LossEdgeTest, LargeLogitsKeepTheirDigits) {
  EXPECT_EQ(loss({1e4F, -1e4F}, {0, 1}, {1.0F}), 1e4);
  EXPECT_EQ(d, (std::vector<float>{0.5F, -0.5F}));
  EXPECT_NEAR(loss({-20.0F, 20.0F}, {0, 1}, {1.0F}), std::exp(-20.0), 1e-15);
  EXPECT_NEAR(d[0], 0.5 * std::exp(-20.0), 1e-15);
  EXPECT_NEAR(d[1], -0.5 * std::exp(-20.0), 1e-15);
}

TEST_F(LossEdgeTest, UntrainedColumnIsNotRead) {
  EXPECT_NEAR(loss({0.0F, NAN}, {1}, {1.0F, 0.0F}), std::log(2.0), 1e-7);
  EXPECT_EQ(d, (std::vector<float>{-0.5F, 0.0F}));
}

TEST_F(LossEdgeTest, NonFiniteLogitIsSeen) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::uint64_t label : {0U, 1U}) {
      const double value = loss({0.0F, bad}, {0, label}, {1.0F});
      const bool right = (bad > 0) == (label == 1) && !std::isnan(bad);
      EXPECT_EQ(std::isfinite(value), right) << bad << " " << label;
    }
  }
}

TEST_F(LossEdgeTest, NonFiniteTargetIsSeen) {
  for (const auto kind : {RegressionLoss::kSigmoidMae, RegressionLoss::kTweedie}) {
    const float target = NAN, logit = 0.0F;
    const RegressionHead head{kind, 30.0F, 0.1F, &target};
    LossArgs args;
    args.candidates = 1;
    args.heads = {&head, 1};
    args.logits = &logit;
    EXPECT_TRUE(std::isnan(cpu_ops().loss(ctx, args)));
  }
}

}  // namespace
}  // namespace paceline::ops
