// The GPU attention against the fp64 reference on the same inputs, and the laws it promises.
//
// An error is measured by what rounding to T costs: the same formulas in fp32 with weights, their
// gradients and outputs rounded to T (o too, before delta). Twice that is allowed, three times with
// a soft cap.
#include "ops/ranker_attention/ranker_attention_cuda.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/ranker_attention/ranker_attention_cuda_problem.hpp"
#include "ops/ranker_attention/ranker_attention_ref.hpp"

namespace paceline::ops {
namespace {

using device::BFloat16;
using testing::AttentionCase;
using testing::AttentionLengths;
using testing::AttentionProblem;

template <typename T>
float rounded(float x) {
  return testing::as_float(testing::as<T>(x));
}
template <typename T>
std::vector<float> rounded(std::vector<float> x) {
  for (float& y : x) y = rounded<T>(y);
  return x;
}

template <typename T>
typename AttentionProblem<T>::Output naive(const AttentionProblem<T>& p) {
  const AttentionShape s = p.shape();
  const int d = s.head_dim;
  AttentionValues<float> x{p.q, p.k, p.v, std::vector<float>(p.q.size()),
                           std::vector<float>(p.q.size() / static_cast<std::size_t>(d))};
  AttentionGrads<float> g{std::vector<float>(x.q.size()), std::vector<float>(x.k.size()),
                          std::vector<float>(x.v.size())};
  for_queries_ref(s, [&](std::int64_t query, std::int64_t row, std::int64_t first, std::int64_t n) {
    for (int h = 0; h < s.query_heads; ++h) {
      const auto qh = static_cast<std::size_t>(query * s.query_heads + h);
      const float* q = &x.q[qh * static_cast<std::size_t>(d)];
      const float* d_o = &p.d_o[qh * static_cast<std::size_t>(d)];
      float* o = &x.o[qh * static_cast<std::size_t>(d)];
      float* dq = &g.dq[qh * static_cast<std::size_t>(d)];
      const auto key_of = [&](std::int64_t j) {
        return static_cast<std::size_t>((j * s.key_heads + h / (s.query_heads / s.key_heads)) * d);
      };
      const auto raw = [&](std::int64_t j) { return s.scale * dot_ref(q, &x.k[key_of(j)], d); };
      float max = -std::numeric_limits<float>::infinity();
      float sum = 0.0F;
      for_keys_ref(s, row, first, n, [&](auto j) { max = std::max(max, cap_ref(s, raw(j))); });
      for_keys_ref(s, row, first, n, [&](auto j) {
        const float w = std::exp(cap_ref(s, raw(j)) - max);
        sum += w;
        for (int i = 0; i < d; ++i)
          o[i] += rounded<T>(w) * x.v[key_of(j) + static_cast<std::size_t>(i)];
      });
      for (int i = 0; i < d; ++i) o[i] = rounded<T>(o[i] / sum);
      x.lse[qh] = max + std::log(sum);
      const float delta = dot_ref(o, d_o, d);
      for_keys_ref(s, row, first, n, [&](auto j) {
        const std::size_t kd = key_of(j);
        const float w = std::exp(cap_ref(s, raw(j)) - x.lse[qh]);
        const float ds =
            rounded<T>(w * (dot_ref(d_o, &x.v[kd], d) - delta) * cap_slope_ref(s, raw(j)));
        for (int i = 0; i < d; ++i) {
          const std::size_t c = kd + static_cast<std::size_t>(i);
          dq[i] += s.scale * ds * x.k[c];
          g.dk[c] += s.scale * ds * q[i];
          g.dv[c] += rounded<T>(w) * d_o[i];
        }
      });
    }
  });
  return {x.o, x.lse, rounded<T>(g.dq), rounded<T>(g.dk), rounded<T>(g.dv)};
}

template <typename Output>
void expect_same(const Output& a, const Output& b) {
  EXPECT_TRUE(testing::same_bits(a.o, b.o));
  EXPECT_TRUE(testing::same_bits(a.lse, b.lse));
  EXPECT_TRUE(testing::same_bits(a.dq, b.dq));
  EXPECT_TRUE(testing::same_bits(a.dk, b.dk));
  EXPECT_TRUE(testing::same_bits(a.dv, b.dv));
}

// Against the reference, and twice.
template <typename T>
void check(const AttentionCase& c) {
  const AttentionProblem<T> p(c);
  const auto y = p.run();
  const auto low = naive(p);
  const AttentionShape s = p.shape();
  AttentionValues<double> ref{
      testing::to<double>(p.q), testing::to<double>(p.k), testing::to<double>(p.v), {}, {}};
  ranker_attention_ref(s, ref);
  const auto grads = ranker_attention_grad_ref(s, ref, testing::to<double>(p.d_o));
  const double k = s.cap_kind == SoftCap::kNone ? 2.0 : 3.0;
  const testing::Tolerance tol{k, 4.0, 2e-6, 4e-6};
  const auto expect = [&](const char* what, const std::vector<float>& got,
                          const std::vector<double>& want, const std::vector<float>& measure) {
    EXPECT_TRUE(testing::near_reference(got, want, measure, tol)) << what;
  };
  expect("o", y.o, ref.o, low.o);
  expect("lse", y.lse, ref.lse, low.lse);
  expect("dq", y.dq, grads.dq, low.dq);
  expect("dk", y.dk, grads.dk, low.dk);
  expect("dv", y.dv, grads.dv, low.dv);
  expect_same(y, p.run());
}

AttentionLengths random_lengths(int examples, std::uint64_t id) {
  AttentionLengths lengths;
  for (int b = 0; b < examples; ++b) {
    const auto at = static_cast<std::uint64_t>(b);
    lengths.push_back({static_cast<int>(testing::random_below(300, at, id)),
                       static_cast<int>(testing::random_below(80, at, id + 1))});
  }
  return lengths;
}

std::vector<AttentionCase> cases(bool tensor_cores) {
  const AttentionLengths mixed = {{1, 1}, {0, 3}, {17, 0}, {5, 7}, {0, 0}, {40, 8}, {129, 8}};
  const AttentionLengths edges = {{63, 1},  {64, 2},  {65, 15}, {127, 1},
                                  {128, 0}, {120, 9}, {96, 97}};
  const int small = tensor_cores ? 64 : 8;
  std::vector<AttentionCase> all = {
      {"mixed", mixed},
      {"edges", edges, 3, 1, 64},
      {"edges_causal", edges, 2, 2, 64, true},
      {"long", {{700, 140}, {3, 2}}, 2, 1, small},
      {"long_causal", {{390, 9}}, 3, 1, small, true},
      {"only_self", {{0, 1}, {0, 150}}},
      {"no_candidates", {{133, 0}, {2, 0}}},
      {"no_candidates_to_query", {{133, 0}, {2, 0}}, 2, 1, 64, false, SoftCap::kNone, true},
      {"nothing", {}},
      {"empty_examples", {{0, 0}, {0, 0}}},
      {"dim_128", mixed, 4, 2, 128},
      {"random_5", random_lengths(6, 11), 5, 1, 128},
      {"random_10_2", random_lengths(6, 13), 10, 2, small},
      {"random_causal", random_lengths(6, 15), 4, 2, 128, true},
      {"sharp", {{140, 8}, {5, 3}, {17, 0}}, 2, 1, 64, false, SoftCap::kNone, false, 2.0F},
      {"negative_scale", {{70, 8}, {5, 3}}, 2, 1, 64, false, SoftCap::kNone, false, -0.125F},
  };
  if (!tensor_cores) all.push_back({"dim_72", mixed, 2, 2, 72});
  for (const bool causal : {false, true}) {
    for (const auto& [cap, name] :
         {std::pair{SoftCap::kNone, "plain"}, std::pair{SoftCap::kTanh, "tanh"},
          std::pair{SoftCap::kSoftSign, "soft_sign"}}) {
      for (const bool only : {false, true}) {
        for (const int dim : {64, 128}) {
          all.push_back({std::string(name) + (causal ? "_causal" : "") +
                             (only ? "_candidates_" : "_") + std::to_string(dim),
                         {{70, 8}, {0, 3}, {193, 135}, {1, 1}, {13, 0}},
                         4,
                         2,
                         dim,
                         causal,
                         cap,
                         only,
                         0.15F});
        }
      }
    }
  }
  return all;
}

class GpuRankerAttention : public device::testing::GpuTest,
                           public ::testing::WithParamInterface<AttentionCase> {};
TEST_P(GpuRankerAttention, MatchesReferenceTwice) { check<BFloat16>(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, GpuRankerAttention, ::testing::ValuesIn(cases(true)),
                         [](const auto& test) { return test.param.name; });

class GpuRankerAttentionFloat : public GpuRankerAttention {};
TEST_P(GpuRankerAttentionFloat, MatchesReferenceTwice) { check<float>(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Cases, GpuRankerAttentionFloat, ::testing::ValuesIn(cases(false)),
                         [](const auto& test) { return test.param.name; });

std::vector<float> rows_of(const std::vector<float>& x, std::int64_t first, std::int64_t count,
                           std::int64_t width) {
  return {x.begin() + first * width, x.begin() + (first + count) * width};
}
void copy_rows(const std::vector<float>& from, std::int64_t first, std::int64_t count,
               std::int64_t width, std::vector<float>& to, std::int64_t at) {
  std::copy_n(from.begin() + first * width, count * width, to.begin() + at * width);
}

template <typename T>
class GpuRankerAttentionLaws : public device::testing::GpuTest {
 protected:
  using Problem = AttentionProblem<T>;
  using Output = typename Problem::Output;

  static void give_rows(const Problem& a, std::int64_t from, std::int64_t count, Problem& b,
                        std::int64_t to) {
    copy_rows(a.q, from, count, a.q_width(), b.q, to);
    copy_rows(a.d_o, from, count, a.q_width(), b.d_o, to);
    copy_rows(a.k, from, count, a.k_width(), b.k, to);
    copy_rows(a.v, from, count, a.k_width(), b.v, to);
  }
  static void expect_same_queries(const Problem& p, const Output& a, std::int64_t from,
                                  std::int64_t count, const Output& b, std::int64_t to) {
    const std::int64_t w = p.q_width();
    const std::int64_t h = p.of().query_heads;
    EXPECT_TRUE(testing::same_bits(rows_of(a.o, from, count, w), rows_of(b.o, to, count, w)));
    EXPECT_TRUE(testing::same_bits(rows_of(a.dq, from, count, w), rows_of(b.dq, to, count, w)));
    EXPECT_TRUE(testing::same_bits(rows_of(a.lse, from, count, h), rows_of(b.lse, to, count, h)));
  }
  static void expect_same_keys(const Problem& p, const Output& a, std::int64_t from,
                               std::int64_t count, const Output& b, std::int64_t to) {
    const std::int64_t w = p.k_width();
    EXPECT_TRUE(testing::same_bits(rows_of(a.dk, from, count, w), rows_of(b.dk, to, count, w)));
    EXPECT_TRUE(testing::same_bits(rows_of(a.dv, from, count, w), rows_of(b.dv, to, count, w)));
  }
  static std::vector<AttentionCase> variants() {
    return {{"plain", {}, 4, 2, 128},
            {"causal", {}, 3, 1, 64, true},
            {"capped", {}, 2, 1, 128, true, SoftCap::kTanh}};
  }
};
using Types = ::testing::Types<BFloat16, float>;
TYPED_TEST_SUITE(GpuRankerAttentionLaws, Types);

TYPED_TEST(GpuRankerAttentionLaws, AnExampleAloneHasTheSameBits) {
  for (AttentionCase c : this->variants()) {
    for (const int keys : {0, 1, 45, 200}) {
      c.lengths = {{keys, 5}};
      const AttentionProblem<TypeParam> alone(c);
      const auto a = alone.run();
      c.lengths = {{33, 4}, {keys, 5}, {1, 2}};
      AttentionProblem<TypeParam> among(c, 9);
      this->give_rows(alone, 0, keys + 5, among, 37);
      const auto b = among.run();
      this->expect_same_queries(alone, a, 0, keys + 5, b, 37);
      this->expect_same_keys(alone, a, 0, keys + 5, b, 37);
    }
  }
}

TYPED_TEST(GpuRankerAttentionLaws, ACandidateAloneHasTheSameBits) {
  for (AttentionCase c : this->variants()) {
    for (const int keys : {0, 45, 129}) {
      c.lengths = {{keys, 140}};
      const AttentionProblem<TypeParam> many(c);
      const auto a = many.run();
      c.lengths = {{keys, 1}};
      for (const int candidate : {0, 7, 139}) {
        AttentionProblem<TypeParam> one(c, 5);
        this->give_rows(many, 0, keys, one, 0);
        this->give_rows(many, keys + candidate, 1, one, keys);
        const auto b = one.run();
        this->expect_same_queries(many, a, 0, keys, b, 0);
        this->expect_same_queries(many, a, keys + candidate, 1, b, keys);
        this->expect_same_keys(many, a, keys + candidate, 1, b, keys);
      }
    }
  }
}

TYPED_TEST(GpuRankerAttentionLaws, QueryScopeKeepsTheBits) {
  for (AttentionCase c : this->variants()) {
    c.lengths = {{129, 8}, {0, 3}, {45, 1}, {200, 140}};
    const AttentionProblem<TypeParam> all(c);
    c.candidates_only = true;
    AttentionProblem<TypeParam> only(c);
    only.k = all.k;
    only.v = all.v;
    std::int64_t row = 0, query = 0;
    for (const auto& [keys, candidates] : c.lengths) {
      copy_rows(all.q, row + keys, candidates, all.q_width(), only.q, query);
      copy_rows(all.d_o, row + keys, candidates, all.q_width(), only.d_o, query);
      row += keys + candidates;
      query += candidates;
    }
    const auto a = all.run();
    const auto b = only.run();
    row = query = 0;
    for (const auto& [keys, candidates] : c.lengths) {
      this->expect_same_queries(all, a, row + keys, candidates, b, query);
      this->expect_same_keys(all, a, row + keys, candidates, b, row + keys);
      row += keys + candidates;
      query += candidates;
    }
  }
}

TYPED_TEST(GpuRankerAttentionLaws, NanAndInfinityStayInTheirExample) {
  for (AttentionCase c : this->variants()) {
    c.lengths = {{20, 3}, {20, 3}, {5, 2}};
    AttentionProblem<TypeParam> p(c);
    const auto good = p.run();
    const auto bad = static_cast<std::size_t>(25 * p.k_width() + 1);
    p.k[bad] = std::numeric_limits<float>::quiet_NaN();
    p.v[bad] = std::numeric_limits<float>::infinity();
    const auto y = p.run();
    this->expect_same_queries(p, good, 0, 23, y, 0);
    this->expect_same_queries(p, good, 46, 7, y, 46);
    this->expect_same_keys(p, good, 0, 23, y, 0);
    this->expect_same_keys(p, good, 46, 7, y, 46);
    const auto width = static_cast<std::size_t>(p.q_width());
    for (std::size_t i = 43 * width; i < 46 * width; i += width)
      ASSERT_TRUE(std::isnan(y.o[i])) << "a candidate that reads a NaN: " << i / width;
  }
}

TYPED_TEST(GpuRankerAttentionLaws, HugeLogitsStayFinite) {
  AttentionProblem<TypeParam> p({"huge", {{140, 4}}});
  for (float& x : p.q) x *= 4096.0F;
  const auto y = p.run();
  for (const auto* v : {&y.o, &y.lse, &y.dq, &y.dk, &y.dv})
    for (const float x : *v) ASSERT_TRUE(std::isfinite(x));
}

using GpuRankerAttentionDeathTest = device::testing::GpuDeathTest;
TEST_F(GpuRankerAttentionDeathTest, ImpossibleShapesAbort) {
  EXPECT_DEATH(AttentionProblem<BFloat16>({"dim", {{1, 1}}, 2, 1, 72}).run(), "64 or 128");
  EXPECT_DEATH(AttentionProblem<float>({"dim", {{1, 1}}, 2, 1, 136}).run(), "up to 128");
  EXPECT_DEATH(AttentionProblem<float>({"heads", {{1, 1}}, 3, 2, 8}).run(),
               "multiple of key_heads");
}

}  // namespace
}  // namespace paceline::ops
