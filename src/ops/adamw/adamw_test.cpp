#include "ops/adamw/adamw_ref.hpp"

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Result3 {
  std::vector<float> p, m, v;
};

class AdamWTest : public ::testing::TestWithParam<int> {};

TEST_P(AdamWTest, MatchesReferenceOverSeveralSteps) {
  const int n = GetParam();
  constexpr int kSteps = 3;
  AdamWArgs args;
  args.n = n;
  args.lr = 1e-2;
  args.beta2 = 0.98;
  args.weight_decay = 0.3;
  args.grad_scale = 0.7;
  const auto p0 = normal_values(n, 1);
  const auto runs = at_each_thread_count([&](Context& ctx) {
    Guarded<float> p(p0), m(std::vector<float>(p0.size())), v(std::vector<float>(p0.size()));
    for (int t = 1; t <= kSteps; ++t) {
      const auto grad = normal_values(n, static_cast<std::uint64_t>(t + 1));
      AdamWArgs step = args;
      step.t = t;
      step.p = p.data();
      step.m = m.data();
      step.v = v.data();
      step.grad = grad.data();
      cpu_ops().adamw(ctx, step);
    }
    EXPECT_TRUE(p.intact() && m.intact() && v.intact());
    return Result3{p.vector(), m.vector(), v.vector()};
  });
  std::vector<double> p, m, v;
  std::vector<float> p_naive, m_naive, v_naive;
  for (const float x : p0) {
    AdamWState<double> ref{x, 0, 0};
    AdamWState<float> naive{x, 0, 0};
    const auto i = p.size();
    for (int t = 1; t <= kSteps; ++t) {
      args.t = t;
      const float g = normal_values(n, static_cast<std::uint64_t>(t + 1))[i];
      ref = adamw_ref<double>(args, g, ref);
      naive = adamw_ref(args, g, naive);
    }
    p.push_back(ref.p);
    m.push_back(ref.m);
    v.push_back(ref.v);
    p_naive.push_back(naive.p);
    m_naive.push_back(naive.m);
    v_naive.push_back(naive.v);
  }
  for (const auto& r : runs) {
    EXPECT_TRUE(same_bits(runs[0].p, r.p));
    EXPECT_TRUE(same_bits(runs[0].m, r.m));
    EXPECT_TRUE(same_bits(runs[0].v, r.v));
  }
  EXPECT_TRUE(near_reference(runs[0].p, p, p_naive));
  EXPECT_TRUE(near_reference(runs[0].m, m, m_naive));
  EXPECT_TRUE(near_reference(runs[0].v, v, v_naive));
}

INSTANTIATE_TEST_SUITE_P(Cpu, AdamWTest, ::testing::Values(0, 1, 13, 300));

TEST(AdamWThreadsTest, ChunksGiveEqualBits) {
  const int n = 30011;
  const auto grad = normal_values(n, 2);
  const auto runs = at_each_thread_count([&](Context& ctx) {
    auto p = normal_values(n, 1), m = normal_values(n, 3);
    std::vector<float> v(p.size(), 0.5F);
    cpu_ops().adamw(
        ctx, {n, p.data(), grad.data(), m.data(), v.data(), 5, 1e-3, 0.9, 0.98, 1e-8, 0.01, 0.5});
    return p;
  });
  for (const auto& r : runs) EXPECT_TRUE(same_bits(runs[0], r));
  EXPECT_FALSE(same_bits(runs[0], normal_values(n, 1)));
}

TEST(AdamWDecayTest, SmallDecayIsNotRoundedAway) {
  // lr * decay = 1e-6 of p at a time: 1 - 1e-6 as one fp32 factor would be 5 % off.
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  float p = 1.0F, m = 0.0F, v = 0.0F;
  const float g = 0.0F;
  for (int t = 1; t <= 1000; ++t) {
    cpu_ops().adamw(ctx, {1, &p, &g, &m, &v, t, 1e-4, 0.9, 0.98, 1e-8, 0.01, 1.0});
  }
  EXPECT_NEAR(1.0F - p, 1e-3, 6e-5);
}

}  // namespace
}  // namespace paceline::ops
