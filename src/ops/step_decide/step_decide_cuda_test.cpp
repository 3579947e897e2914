// A step's decision on the GPU against the formulas of the CPU's optimizer.
#include "ops/step_decide/step_decide_cuda.hpp"

#include <cmath>
#include <limits>

#include "device/testing/gpu_test.hpp"

namespace paceline::ops {
namespace {

using device::testing::DeviceArray;

struct Inputs {
  double factor = 0.5, loss = 1.25, grad_norm = 3.0;
  std::int32_t not_finite = 0;
  std::int64_t adam_steps = 0;
};

class GpuStepDecide : public device::testing::GpuTest {
 protected:
  StepDecision decide(const Inputs& in) const {
    const DeviceArray<double> values(std::vector<double>{in.factor, in.loss, in.grad_norm});
    const DeviceArray<std::int32_t> not_finite(std::vector<std::int32_t>{in.not_finite});
    const DeviceArray<std::int64_t> steps(std::vector<std::int64_t>{in.adam_steps});
    const DeviceArray<StepDecision> out(1);
    StepDecideCudaArgs args = config;
    args.factor = values.data();
    args.loss = values.data() + 1;
    args.grad_norm = values.data() + 2;
    args.table_not_finite = with_table ? not_finite.data() : nullptr;
    args.adam_steps = steps.data();
    args.decision = out.data();
    const device::Stream stream("test");
    step_decide_cuda(stream, args);
    stream.synchronize();
    EXPECT_EQ(steps.read()[0], out.read()[0].adam_steps);
    return out.read()[0];
  }

  bool with_table = true;
  StepDecideCudaArgs config = [] {
    StepDecideCudaArgs a;
    a.lr = 1e-2;
    a.table_lr = 0.1;
    a.beta1 = 0.9;
    a.beta2 = 0.98;
    a.clip = 1.0;
    return a;
  }();
};

TEST_F(GpuStepDecide, FactorsAreThoseOfTheOptimizer) {
  for (const std::int64_t before : {0, 1, 9, 1000, 2000000}) {
    const StepDecision d = decide({.adam_steps = before});
    const auto t = static_cast<double>(before + 1);
    EXPECT_EQ(d.applied, 1);
    EXPECT_EQ(d.adam_steps, before + 1);
    EXPECT_EQ(d.loss, 1.25);
    EXPECT_EQ(d.grad_norm, 3.0);
    EXPECT_EQ(d.lr, 1e-2 * 0.5);
    EXPECT_EQ(d.table_lr, 0.1 * 0.5);
    EXPECT_FLOAT_EQ(d.grad_scale, static_cast<float>(1.0 / 3.0));
    EXPECT_FLOAT_EQ(d.step, static_cast<float>(d.lr / (1.0 - std::pow(0.9, t))));
    EXPECT_FLOAT_EQ(d.spread, static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(0.98, t))));
  }
}

TEST_F(GpuStepDecide, ClipsAboveTheLimitOnlyAndNotWhenOff) {
  EXPECT_EQ(decide({.grad_norm = 1.0}).grad_scale, 1.0F);
  EXPECT_EQ(decide({.grad_norm = 0.0}).grad_scale, 1.0F);
  EXPECT_EQ(decide({.grad_norm = 4.0}).grad_scale, 0.25F);
  config.clip = 0.0;
  EXPECT_EQ(decide({.grad_norm = 4.0}).grad_scale, 1.0F);
}

TEST_F(GpuStepDecide, AnythingNonFiniteDropsTheStepAndKeepsTheCount) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Inputs& in :
       {Inputs{.loss = kNan, .adam_steps = 7}, Inputs{.loss = -kInf, .adam_steps = 7},
        Inputs{.grad_norm = kNan, .adam_steps = 7}, Inputs{.grad_norm = kInf, .adam_steps = 7},
        Inputs{.not_finite = 1, .adam_steps = 7}}) {
    const StepDecision d = decide(in);
    EXPECT_EQ(d.applied, 0);
    EXPECT_EQ(d.adam_steps, 7);
    EXPECT_EQ(std::isnan(d.loss), std::isnan(in.loss));
    EXPECT_EQ(std::isnan(d.grad_norm), std::isnan(in.grad_norm));
    EXPECT_EQ(d.lr, 0.0);
  }
  with_table = false;
  EXPECT_EQ(decide({.not_finite = 1}).applied, 1) << "the flag is not read without a table";
}

}  // namespace
}  // namespace paceline::ops
