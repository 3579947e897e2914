// The CPU attention against its fp64 reference, and the laws it promises.
#include "ops/ranker_attention/ranker_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "ops/ranker_attention/ranker_attention_plan.hpp"
#include "ops/ranker_attention/ranker_attention_ref.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using Lengths = std::vector<std::pair<int, int>>;  // keys, candidates of each example

struct Case {
  std::string name;
  Lengths lengths;
  int query_heads = 2;
  int key_heads = 1;
  int head_dim = 64;
  bool causal = false;
  SoftCap cap_kind = SoftCap::kNone;
  bool candidates_only = false;
  float scale = 0.125F;
  float cap = 2.0F;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

constexpr float kGuard = 12345.75F;

// A case with its arrays: q, k, v side by side in one buffer with a gap behind each row (or q on
// its own for candidates_only), every output in a buffer with gaps and guards before and after.
class Problem {
 public:
  // other: another set of values than 0's.
  explicit Problem(const Case& c, std::uint64_t other = 0)
      : c_(c), rng_(testing::test_seed() + other, RngStream::kTest) {
    cu_rows_ = {0};
    cu_candidates_ = {0};
    for (const auto& [keys, candidates] : c.lengths) {
      cu_rows_.push_back(cu_rows_.back() + keys + candidates);
      cu_candidates_.push_back(cu_candidates_.back() + candidates);
    }
    x_.q = normals(queries() * q_width(), 0);
    x_.k = normals(rows() * k_width(), 1);
    x_.v = normals(rows() * k_width(), 2);
    d_o_ = normals(queries() * q_width(), 3);
  }

  AttentionShape shape() const {
    AttentionShape s;
    s.examples = static_cast<std::int32_t>(c_.lengths.size());
    s.cu_rows = cu_rows_.data();
    s.cu_candidates = cu_candidates_.data();
    s.query_heads = c_.query_heads;
    s.key_heads = c_.key_heads;
    s.head_dim = c_.head_dim;
    s.scale = c_.scale;
    s.causal = c_.causal;
    s.cap_kind = c_.cap_kind;
    s.cap = c_.cap;
    s.candidates_only = c_.candidates_only;
    return s;
  }
  std::int64_t rows() const { return cu_rows_.back(); }
  std::int64_t queries() const { return c_.candidates_only ? cu_candidates_.back() : rows(); }
  std::int64_t q_width() const { return std::int64_t{c_.query_heads} * c_.head_dim; }
  std::int64_t k_width() const { return std::int64_t{c_.key_heads} * c_.head_dim; }
  const Case& of() const { return c_; }
  AttentionValues<float>& x() { return x_; }
  std::vector<float>& d_o() { return d_o_; }
  const std::vector<float>& d_o() const { return d_o_; }

  template <typename T>
  AttentionValues<T> values() const {
    return {testing::to<T>(x_.q), testing::to<T>(x_.k), testing::to<T>(x_.v), {}, {}};
  }
  struct Output {
    std::vector<float> o, lse, dq, dk, dv;  // dense
  };

  // Forward and backward on a pool; fails the test where a gap or a guard was written.
  Output run(Context& ctx) {
    const std::int64_t qw = q_width();
    const std::int64_t kw = k_width();
    const std::int64_t gap = 3;
    const std::int64_t row = qw + 2 * kw + gap;
    const bool fused = !c_.candidates_only;
    std::vector<float> in = guarded(rows(), row);
    std::vector<float> dout = guarded(rows(), row);
    std::vector<float> q_own = guarded(queries(), qw + gap);
    std::vector<float> dq_own = guarded(queries(), qw + gap);
    std::vector<float> o = guarded(queries(), qw + gap);
    std::vector<float> d_o = guarded(queries(), qw + gap);
    std::vector<float> lse = guarded(queries(), c_.query_heads);
    float* q = (fused ? in : q_own).data() + kEdge;
    float* dq = (fused ? dout : dq_own).data() + kEdge;
    const std::int64_t qs = fused ? row : qw + gap;
    scatter(x_.q, qw, q, qs);
    scatter(x_.k, kw, in.data() + kEdge + qw, row);
    scatter(x_.v, kw, in.data() + kEdge + qw + kw, row);
    scatter(d_o_, qw, d_o.data() + kEdge, qw + gap);

    const float* k = in.data() + kEdge + qw;
    AttentionArgs a{shape(),           q, qs, k, row, k + kw, row, o.data() + kEdge, qw + gap,
                    lse.data() + kEdge};
    ranker_attention_cpu(ctx, a);
    float* dk = dout.data() + kEdge + qw;
    AttentionGradArgs g{
        shape(),  q,  qs, k,  row, k + kw,  row, a.o, a.o_stride, a.lse, d_o.data() + kEdge,
        qw + gap, dq, qs, dk, row, dk + kw, row};
    ranker_attention_grad_cpu(ctx, g);

    Output out;
    out.o = gather(o, kEdge, qw, qw + gap, queries());
    out.lse = gather(lse, kEdge, c_.query_heads, c_.query_heads, queries());
    out.dq = gather(fused ? dout : dq_own, kEdge, qw, qs, queries());
    out.dk = gather(dout, kEdge + qw, kw, row, rows());
    out.dv = gather(dout, kEdge + qw + kw, kw, row, rows());
    for (const auto* buffer : {&o, &lse, &dout, &dq_own}) {
      for (const float x : *buffer) {
        if (x != kGuard) {
          ADD_FAILURE() << c_.name << ": wrote outside an output";
          break;
        }
      }
    }
    return out;
  }
  Output run(int threads = 1) {
    pipeline::TaskPool pool(threads);
    Context ctx(pool);
    return run(ctx);
  }

 private:
  static constexpr std::int64_t kEdge = 5;  // also makes every array unaligned

  // About normal: mean 0, variance 1, the sum of four uniform numbers.
  std::vector<float> normals(std::int64_t n, std::uint64_t which) const {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto w = rng_.words(i, which);
      const double sum = 0.0 + w[0] + w[1] + w[2] + w[3];
      v[i] = static_cast<float>((sum * 0x1p-32 - 2.0) * std::sqrt(3.0));
    }
    return v;
  }
  static std::vector<float> guarded(std::int64_t count, std::int64_t stride) {
    return std::vector<float>(static_cast<std::size_t>(count * stride + 2 * kEdge), kGuard);
  }
  static void scatter(const std::vector<float>& from, std::int64_t width, float* to,
                      std::int64_t stride) {
    for (std::int64_t i = 0; i < std::ssize(from); ++i)
      to[i / width * stride + i % width] = from[static_cast<std::size_t>(i)];
  }
  // Takes the values out and leaves guards.
  static std::vector<float> gather(std::vector<float>& from, std::int64_t first, std::int64_t width,
                                   std::int64_t stride, std::int64_t count) {
    std::vector<float> v(static_cast<std::size_t>(count * width));
    for (std::int64_t i = 0; i < std::ssize(v); ++i)
      v[static_cast<std::size_t>(i)] = std::exchange(
          from[static_cast<std::size_t>(first + i / width * stride + i % width)], kGuard);
    return v;
  }

  Case c_;
  CounterRng rng_;
  std::vector<std::int32_t> cu_rows_;
  std::vector<std::int32_t> cu_candidates_;
  AttentionValues<float> x_;
  std::vector<float> d_o_;
};

std::vector<Case> cases() {
  const Lengths mixed = {{1, 1}, {0, 3}, {17, 0}, {5, 7}, {0, 0}, {40, 8}, {16, 5}, {129, 8}};
  const Lengths edges = {{47, 1}, {48, 2}, {15, 1}, {16, 0}, {31, 31}, {7, 8}, {8, 6}, {9, 13}};
  const Lengths blocks = {{191, 3}, {192, 8}, {193, 5}, {385, 1}};
  std::vector<Case> all = {
      {"mixed", mixed},
      {"edges", edges, 3, 1, 64},
      {"blocks", blocks, 1, 1, 8},
      {"long", {{520, 40}, {3, 2}}, 2, 1, 8},
      {"only_self", {{0, 1}, {0, 5}}},
      {"no_candidates", {{33, 0}, {2, 0}}},
      {"nothing", {}},
      {"empty_examples", {{0, 0}, {0, 0}}},
      {"dim_8", mixed, 4, 1, 8},
      {"dim_72", {{33, 7}, {0, 2}, {17, 0}, {48, 3}}, 2, 2, 72},
      {"dim_128", {{33, 7}, {0, 2}, {17, 0}, {48, 3}}, 4, 2, 128},
      {"sharp", {{40, 8}, {5, 3}, {17, 0}}, 2, 1, 64, false, SoftCap::kNone, false, 4.0F},
      {"negative_scale",
       {{40, 8}, {5, 3}, {17, 0}},
       2,
       1,
       64,
       false,
       SoftCap::kNone,
       false,
       -0.125F},
  };
  for (const bool causal : {false, true}) {
    for (const auto& [cap, name] :
         {std::pair{SoftCap::kNone, "plain"}, std::pair{SoftCap::kTanh, "tanh"},
          std::pair{SoftCap::kSoftSign, "soft_sign"}}) {
      for (const bool only : {false, true}) {
        Case c{std::string(name) + (causal ? "_causal" : "") + (only ? "_candidates" : ""),
               {{70, 8}, {0, 3}, {193, 5}, {1, 1}, {13, 0}},
               4,
               2,
               8,
               causal,
               cap,
               only,
               0.3F};
        all.push_back(c);
      }
    }
  }
  all.push_back({"causal_long", {{390, 9}}, 3, 1, 8, true});
  return all;
}

void expect_same(const Problem::Output& a, const Problem::Output& b) {
  EXPECT_TRUE(testing::same_bits(a.o, b.o));
  EXPECT_TRUE(testing::same_bits(a.lse, b.lse));
  EXPECT_TRUE(testing::same_bits(a.dq, b.dq));
  EXPECT_TRUE(testing::same_bits(a.dk, b.dk));
  EXPECT_TRUE(testing::same_bits(a.dv, b.dv));
}

class RankerAttention : public ::testing::TestWithParam<Case> {};

TEST_P(RankerAttention, MatchesReference) {
  Problem p(GetParam());
  const Problem::Output y = p.run(2);
  auto ref = p.values<double>();
  auto naive = p.values<float>();
  const AttentionShape s = p.shape();
  ranker_attention_ref(s, ref);
  ranker_attention_ref(s, naive);
  const auto d_o = testing::to<double>(p.d_o());
  const auto ref_grads = ranker_attention_grad_ref(s, ref, d_o);
  const auto naive_grads = ranker_attention_grad_ref(s, naive, p.d_o());
  const testing::Tolerance tol{s.cap_kind == SoftCap::kNone ? 2.0 : 3.0, 2.0, 2e-6};
  EXPECT_TRUE(testing::near_reference(y.o, ref.o, naive.o, tol));
  EXPECT_TRUE(testing::near_reference(y.lse, ref.lse, naive.lse, tol));
  EXPECT_TRUE(testing::near_reference(y.dq, ref_grads.dq, naive_grads.dq, tol));
  EXPECT_TRUE(testing::near_reference(y.dk, ref_grads.dk, naive_grads.dk, tol));
  EXPECT_TRUE(testing::near_reference(y.dv, ref_grads.dv, naive_grads.dv, tol));
}

TEST_P(RankerAttention, SameBitsForEveryThreadCount) {
  Problem p(GetParam());
  const auto all = testing::at_each_thread_count([&](Context& ctx) { return p.run(ctx); });
  for (const Problem::Output& y : all) expect_same(all[0], y);
}

INSTANTIATE_TEST_SUITE_P(Cases, RankerAttention, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(RankerAttentionRef, GradientsAreCentralDifferences) {
  for (const auto cap : {SoftCap::kNone, SoftCap::kTanh, SoftCap::kSoftSign}) {
    for (const bool variant : {false, true}) {
      const Problem p({"small", {{4, 2}, {0, 2}, {3, 0}}, 4, 2, 8, variant, cap, variant, 0.4F});
      const AttentionShape s = p.shape();
      AttentionValues<double> x = p.values<double>();
      const auto d_o = testing::to<double>(p.d_o());
      ranker_attention_ref(s, x);
      const auto g = ranker_attention_grad_ref(s, x, d_o);
      const auto of = [&](std::vector<double> AttentionValues<double>::*member) {
        return [&, member](const std::vector<double>& changed) {
          AttentionValues<double> y = x;
          y.*member = changed;
          ranker_attention_ref(s, y);
          return testing::inner(y.o, d_o);
        };
      };
      EXPECT_TRUE(testing::gradient_matches(of(&AttentionValues<double>::q), x.q, g.dq));
      EXPECT_TRUE(testing::gradient_matches(of(&AttentionValues<double>::k), x.k, g.dk));
      EXPECT_TRUE(testing::gradient_matches(of(&AttentionValues<double>::v), x.v, g.dv));
    }
  }
}

// A row that reads one key only returns its value, and its query and key have no gradient.
TEST(RankerAttentionValues, OneKey) {
  for (const Lengths& lengths : {Lengths{{1, 0}}, Lengths{{0, 1}}}) {
    Problem p({"one_key", lengths, 1});
    const Problem::Output y = p.run();
    for (std::size_t i = 0; i < y.o.size(); ++i) {
      EXPECT_NEAR(y.o[i], p.x().v[i], 3e-7);
      EXPECT_NEAR(y.dv[i], p.d_o()[i], 1e-6);
      EXPECT_NEAR(y.dq[i], 0, 3e-6);
      EXPECT_NEAR(y.dk[i], 0, 3e-6);
    }
  }
}

// Rows [first, first + count) of a dense array.
std::vector<float> rows_of(const std::vector<float>& x, std::int64_t first, std::int64_t count,
                           std::int64_t width) {
  return {x.begin() + first * width, x.begin() + (first + count) * width};
}
void put_rows(const std::vector<float>& from, std::int64_t at, std::int64_t width,
              std::vector<float>& to) {
  std::copy(from.begin(), from.end(), to.begin() + at * width);
}

// Gives count rows of a, from row `from`, to b at row `to`.
void copy_rows(Problem& a, std::int64_t from, std::int64_t count, Problem& b, std::int64_t to) {
  for (auto member :
       {&AttentionValues<float>::q, &AttentionValues<float>::k, &AttentionValues<float>::v}) {
    const std::int64_t w = member == &AttentionValues<float>::q ? a.q_width() : a.k_width();
    put_rows(rows_of(a.x().*member, from, count, w), to, w, b.x().*member);
  }
  put_rows(rows_of(a.d_o(), from, count, a.q_width()), to, a.q_width(), b.d_o());
}

void expect_same_rows(const Problem& p, const Problem::Output& a, std::int64_t from,
                      std::int64_t count, const Problem::Output& b, std::int64_t to) {
  const std::int64_t w = p.q_width();
  EXPECT_TRUE(testing::same_bits(rows_of(a.o, from, count, w), rows_of(b.o, to, count, w)));
  EXPECT_TRUE(testing::same_bits(rows_of(a.dq, from, count, w), rows_of(b.dq, to, count, w)));
  const std::int64_t h = p.of().query_heads;
  EXPECT_TRUE(testing::same_bits(rows_of(a.lse, from, count, h), rows_of(b.lse, to, count, h)));
}

class RankerAttentionInvariance : public ::testing::TestWithParam<std::tuple<int, bool, SoftCap>> {
 protected:
  Case make(Lengths lengths, bool candidates_only = false) const {
    const auto [heads, causal, cap] = GetParam();
    return {"invariance", std::move(lengths), heads, 1, 8, causal, cap, candidates_only};
  }
};

TEST_P(RankerAttentionInvariance, AlonePositionAndNeighbours) {
  for (const int keys : {0, 1, 45, 200, 360}) {
    Problem alone(make({{keys, 5}}));
    const Problem::Output a = alone.run();
    Problem among(make({{33, 4}, {keys, 5}, {1, 2}}), 99);
    copy_rows(alone, 0, keys + 5, among, 37);
    const Problem::Output b = among.run();
    expect_same_rows(alone, a, 0, keys + 5, b, 37);
    const std::int64_t w = alone.k_width();
    EXPECT_TRUE(testing::same_bits(a.dk, rows_of(b.dk, 37, keys + 5, w)));
    EXPECT_TRUE(testing::same_bits(a.dv, rows_of(b.dv, 37, keys + 5, w)));
  }
}

TEST_P(RankerAttentionInvariance, OtherCandidatesAndTheirNumber) {
  for (const int keys : {0, 1, 45, 129, 200}) {
    Problem many(make({{keys, 23}}));
    const Problem::Output a = many.run();
    for (const int c : {0, 1, 7, 22}) {
      // Candidate c alone after the same keys.
      Problem one(make({{keys, 1}}), 5);
      copy_rows(many, 0, keys, one, 0);
      copy_rows(many, keys + c, 1, one, keys);
      const Problem::Output b = one.run();
      expect_same_rows(many, a, 0, keys, b, 0);
      expect_same_rows(many, a, keys + c, 1, b, keys);
    }
  }
}

TEST_P(RankerAttentionInvariance, QueryScope) {
  const Lengths lengths = {{129, 8}, {0, 3}, {45, 1}, {200, 11}};
  Problem all(make(lengths));
  Problem only(make(lengths, true));
  only.x().k = all.x().k;
  only.x().v = all.x().v;
  std::int64_t row = 0;
  std::int64_t query = 0;
  for (const auto& [keys, candidates] : lengths) {
    const std::int64_t w = all.q_width();
    put_rows(rows_of(all.x().q, row + keys, candidates, w), query, w, only.x().q);
    put_rows(rows_of(all.d_o(), row + keys, candidates, w), query, w, only.d_o());
    row += keys + candidates;
    query += candidates;
  }
  const Problem::Output a = all.run();
  const Problem::Output b = only.run();
  row = query = 0;
  for (const auto& [keys, candidates] : lengths) {
    expect_same_rows(all, a, row + keys, candidates, b, query);
    row += keys + candidates;
    query += candidates;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RankerAttentionInvariance,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Bool(),
                                            ::testing::Values(SoftCap::kNone, SoftCap::kTanh)));

TEST(RankerAttentionScratch, OldContentsDoNotMatter) {
  const Case c{"scratch", {{70, 8}, {530, 3}, {9, 0}}, 2, 1, 8, true};
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  Problem p(c);
  const Problem::Output a = p.run(ctx);
  const std::size_t bytes = std::size_t{1} << 20;
  std::memset(ctx.scratch(0, bytes), 0xFF, bytes);  // NaN
  std::memset(ctx.shared_scratch(bytes), 0xFF, bytes);
  const Problem::Output b = p.run(ctx);
  expect_same(a, b);
}

TEST(RankerAttentionValues, NanStaysInItsExample) {
  Problem p({"bad", {{20, 3}, {20, 3}, {5, 2}}});
  const Problem::Output good = p.run();
  p.x().k[static_cast<std::size_t>(25 * p.k_width() + 1)] = std::numeric_limits<float>::quiet_NaN();
  const Problem::Output y = p.run();
  expect_same_rows(p, good, 0, 23, y, 0);
  expect_same_rows(p, good, 46, 7, y, 46);
  for (std::int64_t i = 23 * p.q_width(); i < 46 * p.q_width(); ++i)
    ASSERT_TRUE(std::isnan(y.o[static_cast<std::size_t>(i)])) << i;
}

TEST(RankerAttentionValues, HugeLogitsStayFinite) {
  Problem p({"huge", {{40, 4}}, 2, 1, 64, false, SoftCap::kNone, false, 1e4F});
  const Problem::Output y = p.run();
  for (const auto* v : {&y.o, &y.lse, &y.dq, &y.dk, &y.dv})
    for (const float x : *v) ASSERT_TRUE(std::isfinite(x));
}

TEST(RankerAttentionPlan, EveryQueryOnceAndDearestFirst) {
  for (const bool only : {false, true}) {
    const Problem p({"plan",
                     {{5, 3}, {0, 0}, {4000, 64}, {0, 2}, {7, 0}},
                     10,
                     2,
                     8,
                     false,
                     SoftCap::kNone,
                     only});
    const AttentionShape s = p.shape();
    const attention::Plan plan = attention::measure(s);
    std::vector<attention::Chunk> chunks(static_cast<std::size_t>(plan.chunks));
    attention::make_chunks(s, chunks);
    std::vector<int> seen(static_cast<std::size_t>(p.queries() * s.key_heads));
    int split = 0;
    std::int64_t partial = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const attention::Chunk& c = chunks[i];
      const attention::Example e = attention::example_of(s, c.example);
      EXPECT_LE(c.cost, chunks[i == 0 ? 0 : i - 1].cost);
      EXPECT_LE((c.end - c.begin) * 5, attention::kChunkRows + 5 * attention::kStrip);
      for (int q = c.begin; q < c.end; ++q)
        ++seen[static_cast<std::size_t>((e.first_query + q) * s.key_heads + c.key_head)];
      if (c.parts > 1) {
        ++split;
        partial += attention::partial_size(s, e.keys);
        EXPECT_LE(c.partial + attention::partial_size(s, e.keys), plan.partial_floats);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    EXPECT_EQ(partial, plan.partial_floats);
    EXPECT_EQ(split > 0, !only);
    EXPECT_EQ(plan.max_keys, 4000);
  }
}

TEST(RankerAttentionPlan, KeyBlocksAreEvenWholePanels) {
  for (int n = 1; n < 1200; ++n) {
    const int size = attention::key_block_size(n);
    EXPECT_LE(size, attention::kBlockKeys);
    EXPECT_EQ(size % attention::kPanel, 0);
    EXPECT_EQ((n + size - 1) / size, attention::key_blocks(n)) << n;
  }
}

using RankerAttentionDeathTest = ::testing::Test;
TEST(RankerAttentionDeathTest, ImpossibleShapesAbort) {
  EXPECT_DEATH(Problem({"dim", {{1, 1}}, 2, 1, 12}).run(), "multiple of 8");
  EXPECT_DEATH(Problem({"heads", {{1, 1}}, 3, 2, 8}).run(), "multiple of key_heads");
}

}  // namespace
}  // namespace paceline::ops
