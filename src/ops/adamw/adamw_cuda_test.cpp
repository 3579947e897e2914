// AdamW on the GPU against the fp64 reference of the CPU op.
#include "ops/adamw/adamw_cuda.hpp"

#include "device/testing/gpu_test.hpp"
#include "ops/adamw/adamw_ref.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

class GpuAdamW : public device::testing::GpuTest, public ::testing::WithParamInterface<int> {
 protected:
  static AdamWArgs hyper() {
    AdamWArgs a;
    a.lr = 1e-2;
    a.beta2 = 0.98;
    a.weight_decay = 0.3;
    a.grad_scale = 0.7;
    return a;
  }
  // What step_decide_cuda leaves for step t.
  static StepDecision decision(std::int64_t t) {
    const AdamWArgs a = hyper();
    StepDecision d;
    d.applied = 1;
    d.adam_steps = t;
    d.grad_scale = static_cast<float>(a.grad_scale);
    d.lr = a.lr;
    d.step = static_cast<float>(a.lr / (1.0 - std::pow(a.beta1, static_cast<double>(t))));
    d.spread = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(a.beta2, static_cast<double>(t))));
    return d;
  }

  template <typename T>
  struct State {
    DeviceArray<float> p, m, v;
    DeviceArray<T> shadow;
    explicit State(int n)
        : p(normal_values(n, 1)),
          m(static_cast<std::size_t>(n)),
          v(static_cast<std::size_t>(n)),
          shadow(static_cast<std::size_t>(n)) {}
    void step(const StepDecision& d, const std::vector<float>& grad, std::int64_t decay_end,
              bool keep_shadow = true) const {
      const AdamWArgs a = hyper();
      const DeviceArray<StepDecision> d_decision(std::vector<StepDecision>{d});
      const DeviceArray<float> d_grad(grad);
      const device::Stream stream("test");
      adamw_cuda<T>(stream,
                    {static_cast<std::int64_t>(p.size()), decay_end, p.data(), d_grad.data(),
                     m.data(), v.data(), keep_shadow ? shadow.data() : nullptr, a.beta1, a.beta2,
                     a.eps, a.weight_decay, d_decision.data()});
      stream.synchronize();
    }
  };

  template <typename T>
  void expect_steps(int n, int decay_end) {
    constexpr int kSteps = 3;
    const State<T> state(n);
    const auto p0 = state.p.read();
    std::vector<std::vector<float>> grads;
    for (int t = 1; t <= kSteps; ++t) {
      grads.push_back(normal_values(n, static_cast<std::uint64_t>(t + 1)));
      state.step(decision(t), grads.back(), decay_end);
    }
    std::vector<double> p, m, v;
    std::vector<float> p_naive, m_naive, v_naive;
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      AdamWState<double> ref{static_cast<double>(p0[at]), 0.0, 0.0};
      AdamWState<float> naive{p0[at], 0.0F, 0.0F};
      AdamWArgs a = hyper();
      if (i >= decay_end) a.weight_decay = 0.0;
      for (int t = 1; t <= kSteps; ++t) {
        a.t = t;
        const float g = grads[static_cast<std::size_t>(t - 1)][at];
        ref = adamw_ref<double>(a, static_cast<double>(g), ref);
        naive = adamw_ref(a, g, naive);
      }
      p.push_back(ref.p), m.push_back(ref.m), v.push_back(ref.v);
      p_naive.push_back(naive.p), m_naive.push_back(naive.m), v_naive.push_back(naive.v);
    }
    EXPECT_TRUE(near_reference(state.p.read(), p, p_naive));
    EXPECT_TRUE(near_reference(state.m.read(), m, m_naive));
    EXPECT_TRUE(near_reference(state.v.read(), v, v_naive));
    EXPECT_TRUE(
        same_bits(all_as_float(state.shadow.read()), all_as_float(all_as<T>(state.p.read()))));
  }
};

TEST_P(GpuAdamW, MatchesReferenceOverSeveralSteps) {
  const int n = GetParam();
  for (const int decay_end : {0, n / 3, n}) {
    expect_steps<float>(n, decay_end);
    expect_steps<BFloat16>(n, decay_end);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuAdamW, ::testing::Values(0, 1, 3, 4, 13, 300, 2047, 2048, 2050));

class GpuAdamWLaws : public GpuAdamW {};

TEST_P(GpuAdamWLaws, NothingIsWrittenWhenTheStepIsNotApplied) {
  const int n = GetParam();
  const State<BFloat16> state(n);
  StepDecision d = decision(1);
  d.applied = 0;
  const auto p = state.p.read();
  state.step(d, normal_values(n, 2), n);
  EXPECT_TRUE(same_bits(state.p.read(), p));
  EXPECT_TRUE(same_bits(state.m.read(), std::vector<float>(p.size())));
  EXPECT_TRUE(same_bits(state.v.read(), std::vector<float>(p.size())));
  EXPECT_TRUE(same_bits(all_as_float(state.shadow.read()), std::vector<float>(p.size())));
}

TEST_P(GpuAdamWLaws, WithoutAShadowTheStateIsTheSame) {
  const int n = GetParam();
  const State<BFloat16> with(n), without(n);
  with.step(decision(1), normal_values(n, 2), n / 2);
  without.step(decision(1), normal_values(n, 2), n / 2, false);
  EXPECT_TRUE(same_bits(with.p.read(), without.p.read()));
  EXPECT_TRUE(same_bits(all_as_float(without.shadow.read()), std::vector<float>(with.p.size())));
}

TEST_P(GpuAdamWLaws, ShadowsAreTheRoundedWeights) {
  const auto p = normal_values(GetParam(), 5);
  const DeviceArray<float> d_p(p), same(p.size());
  const DeviceArray<BFloat16> half(p.size());
  const device::Stream stream("test");
  shadow_cuda(stream, static_cast<std::int64_t>(p.size()), d_p.data(), same.data());
  shadow_cuda(stream, static_cast<std::int64_t>(p.size()), d_p.data(), half.data());
  stream.synchronize();
  EXPECT_TRUE(same_bits(same.read(), p));
  EXPECT_TRUE(same_bits(all_as_float(half.read()), all_as_float(all_as<BFloat16>(p))));
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuAdamWLaws, ::testing::Values(1, 4, 30011));

}  // namespace
}  // namespace paceline::ops
