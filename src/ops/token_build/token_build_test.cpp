#include "ops/token_build/token_build_ref.hpp"

#include <ostream>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

enum class Layout { kAll, kTablesFirst, kNoTable };

struct Shape {
  int entries, table_width, model;
  Layout layout;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.entries << "x" << s.table_width << "x" << s.model << " layout "
      << static_cast<int>(s.layout);
}

constexpr int kTableRowCount = 50;

// Entries of a kind with every type of column; the layout says where table columns are.
struct Problem {
  explicit Problem(Shape s) {
    const auto n = s.entries;
    const auto ints = [n](int per_entry, std::uint64_t below, std::uint64_t id) {
      std::vector<std::int32_t> v;
      for (int i = 0; i < n * per_entry; ++i) {
        v.push_back(
            static_cast<std::int32_t>(random_below(below + 1, static_cast<std::uint64_t>(i), id)) -
            1);
      }
      return v;
    };
    table_a = ints(2, kTableRowCount, 11);
    table_b = ints(3, kTableRowCount, 12);
    one_hot = ints(1, 5, 13);
    numbers = normal_values(n, 14);
    for (int i = 0; i < n; ++i)
      masks.push_back(random_below(1U << 9, static_cast<std::uint64_t>(i), 15));
    const TokenInput a{TokenColumn::kTableRows, 2, table_a.data(), nullptr, nullptr};
    const TokenInput b{TokenColumn::kTableRows, 3, table_b.data(), nullptr, nullptr};
    const TokenInput hot{TokenColumn::kOneHot, 5, one_hot.data(), nullptr, nullptr};
    const TokenInput number{TokenColumn::kNumber, 1, nullptr, numbers.data(), nullptr};
    const TokenInput mask{TokenColumn::kMask, 9, nullptr, nullptr, masks.data()};
    if (s.layout == Layout::kAll) inputs = {number, a, hot, mask, b};
    if (s.layout == Layout::kTablesFirst) inputs = {a, b, hot};
    if (s.layout == Layout::kNoTable) inputs = {mask, number};
    args.entries = n;
    args.inputs = inputs;
    args.table_width = s.table_width;
    for (const auto& in : inputs) {
      args.width += in.column == TokenColumn::kTableRows ? in.width * s.table_width : in.width;
    }
    args.model = s.model;
    args.multiplier = 3.5F;
    table = normal_values(kTableRowCount * s.table_width, 1);
    w = normal_values(std::int64_t{args.model} * args.width, 2);
    // Every second row of h belongs to this kind, in reverse order.
    for (int e = n - 1; e >= 0; --e) token_index.push_back(2 * e + 1);
    dh = normal_values(std::int64_t{2 * n + 1} * s.model, 3);
    args.table = table.data();
    args.w = w.data();
    args.token_index = token_index.data();
  }
  Problem(const Problem&) = delete;

  std::vector<float> at_entries(std::span<const float> h) const {
    std::vector<float> out;
    for (const auto t : token_index) {
      const auto row = h.begin() + std::ptrdiff_t{t} * args.model;
      out.insert(out.end(), row, row + args.model);
    }
    return out;
  }

  std::vector<std::int32_t> table_a, table_b, one_hot, token_index;
  std::vector<float> numbers, table, w, dh;
  std::vector<std::uint64_t> masks;
  std::vector<TokenInput> inputs;
  TokenBuildArgs args;
};

class TokenBuildTest : public ::testing::TestWithParam<Shape> {};

TEST_P(TokenBuildTest, ForwardMatchesReferenceAtEachThreadCount) {
  Problem p(GetParam());
  const std::vector<float> h0(
      (2 * p.token_index.size() + 1) * static_cast<std::size_t>(p.args.model), 7.5F);
  const auto ref = token_build_ref(p.args, to<double>(p.table), to<double>(p.w));
  const auto naive = token_build_ref(p.args, p.table, p.w);
  const auto runs = at_each_thread_count([&](Context& ctx) {
    Guarded<float> h(h0);
    auto args = p.args;
    args.h = h.data();
    cpu_ops().token_build(ctx, args);
    EXPECT_TRUE(h.intact());
    for (std::size_t i = 0; i < h0.size(); ++i) {
      if (i / static_cast<std::size_t>(args.model) % 2 == 0) {
        EXPECT_EQ(h.span()[i], 7.5F);
      }
    }
    return p.at_entries(h.span());
  });
  for (const auto& r : runs) EXPECT_TRUE(same_bits(runs[0], r));
  EXPECT_TRUE(near_reference(runs[0], ref, naive));
}

TEST_P(TokenBuildTest, BackwardMatchesReferenceAtEachThreadCount) {
  Problem p(GetParam());
  const auto dw0 = normal_values(static_cast<std::int64_t>(p.w.size()), 4);
  const auto dy = p.at_entries(p.dh);
  auto ref = token_build_grad_ref(p.args, to<double>(p.table), to<double>(p.w), to<double>(dy));
  auto naive = token_build_grad_ref(p.args, p.table, p.w, dy);
  for (std::size_t i = 0; i < dw0.size(); ++i) {
    ref.dw[i] += static_cast<double>(dw0[i]);
    naive.dw[i] += dw0[i];
  }
  const std::int64_t per_entry =
      std::int64_t{lookups_per_entry(p.args.inputs)} * p.args.table_width;
  ASSERT_EQ(static_cast<std::size_t>(p.args.entries * per_entry), ref.d_rows.size());
  const auto runs = at_each_thread_count([&](Context& ctx) {
    Guarded<float> dw(dw0), d_rows(p.args.entries * per_entry);
    cpu_ops().token_build_grad(ctx, {p.args, p.dh.data(), dw.data(), d_rows.data()});
    EXPECT_TRUE(dw.intact() && d_rows.intact());
    return std::pair(dw.vector(), d_rows.vector());
  });
  for (const auto& [dw, d_rows] : runs) {
    EXPECT_TRUE(same_bits(runs[0].first, dw));
    EXPECT_TRUE(same_bits(runs[0].second, d_rows));
  }
  EXPECT_TRUE(near_reference(runs[0].first, ref.dw, naive.dw));
  EXPECT_TRUE(near_reference(runs[0].second, ref.d_rows, naive.d_rows));
  for (std::size_t i = 0; i < ref.d_rows.size(); ++i) {
    if (ref.d_rows[i] == 0.0) {
      ASSERT_EQ(runs[0].second[i], 0.0F) << "missing lookup, " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, TokenBuildTest,
    ::testing::Values(Shape{0, 8, 16, Layout::kAll}, Shape{1, 8, 16, Layout::kAll},
                      Shape{95, 3, 17, Layout::kAll}, Shape{97, 32, 40, Layout::kTablesFirst},
                      Shape{192, 5, 8, Layout::kNoTable}, Shape{193, 32, 24, Layout::kAll},
                      Shape{3300, 8, 16, Layout::kAll}));

TEST(TokenBuildGradientTest, MatchesCentralDifferences) {
  Problem p({4, 3, 5, Layout::kAll});
  const auto table = to<double>(p.table), w = to<double>(p.w);
  const auto dy = to<double>(p.at_entries(p.dh));
  const auto g = token_build_grad_ref(p.args, table, w, dy);
  EXPECT_TRUE(gradient_matches(
      [&](const auto& v) { return inner(token_build_ref(p.args, table, v), dy); }, w, g.dw));
  // A table row's gradient is the sum over its lookups.
  std::vector<double> d_table(table.size());
  std::size_t at = 0;
  for (std::size_t e = 0; e < 4; ++e) {
    const auto add = [&](std::int32_t row) {
      for (std::size_t c = 0; c < 3; ++c, ++at) {
        if (row >= 0) d_table[static_cast<std::size_t>(row) * 3 + c] += g.d_rows[at];
      }
    };
    for (std::size_t i = 0; i < 2; ++i) add(p.table_a[e * 2 + i]);
    for (std::size_t i = 0; i < 3; ++i) add(p.table_b[e * 3 + i]);
  }
  EXPECT_TRUE(gradient_matches(
      [&](const auto& v) { return inner(token_build_ref(p.args, v, w), dy); }, table, d_table));
}

// The same entry at every place has the same bits.
TEST(TokenBuildRowTest, BitsDoNotDependOnPlaceOrNeighbours) {
  pipeline::TaskPool pool(2);
  Context ctx(pool);
  constexpr int kEntries = 200;
  Problem one({1, 7, 33, Layout::kTablesFirst});
  std::vector<float> alone(3 * 33);
  one.args.h = alone.data();
  cpu_ops().token_build(ctx, one.args);
  for (int first = 0; first < 8; ++first) {
    Problem p({kEntries, 7, 33, Layout::kTablesFirst});
    for (int e = first; e < kEntries; e += 8) {
      std::copy_n(one.table_a.begin(), 2, p.table_a.begin() + std::ptrdiff_t{e} * 2);
      std::copy_n(one.table_b.begin(), 3, p.table_b.begin() + std::ptrdiff_t{e} * 3);
      p.one_hot[static_cast<std::size_t>(e)] = one.one_hot[0];
    }
    std::vector<float> h((2 * kEntries + 1) * 33);
    p.args.h = h.data();
    cpu_ops().token_build(ctx, p.args);
    for (int e = first; e < kEntries; e += 8) {
      const auto token = static_cast<std::size_t>(p.token_index[static_cast<std::size_t>(e)]);
      ASSERT_TRUE(same_bits(std::span<const float>(alone).subspan(33, 33),
                            std::span<const float>(h).subspan(token * 33, 33)))
          << "entry " << e;
    }
  }
}

}  // namespace
}  // namespace paceline::ops
