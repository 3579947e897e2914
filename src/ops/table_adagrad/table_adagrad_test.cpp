#include "ops/table_adagrad/table_adagrad_ref.hpp"

#include <ostream>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int lookups, rows, width;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.lookups << "x" << s.rows << "x" << s.width;
}

class TableTest : public ::testing::TestWithParam<Shape> {
 protected:
  // About a tenth is missing, small rows are looked up more often.
  TableTest() {
    for (int i = 0; i < s.lookups; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const auto limit = 1 + random_below(static_cast<std::uint64_t>(s.rows), at, 1);
      const auto row = static_cast<std::int32_t>(random_below(limit, at, 2));
      lookups.push_back(random_below(10, at, 3) == 0 ? -1 : row);
    }
  }

  Shape s = GetParam();
  std::vector<std::int32_t> lookups;
};

TEST_P(TableTest, DedupGroupsPlacesByAscendingRow) {
  const auto ref = dedup_ref(lookups);
  at_each_thread_count([&](Context& ctx) {
    TableRowIndex index(s.lookups + 3);
    cpu_ops().table_dedup(ctx, s.lookups, lookups.data(), index);
    EXPECT_EQ(static_cast<std::size_t>(index.unique), ref.size());
    std::size_t u = 0;
    for (const auto& [row, places] : ref) {
      EXPECT_EQ(index.rows[u], row);
      const auto begin = index.places.begin() + index.starts[u];
      const auto end = index.places.begin() + index.starts[u + 1];
      EXPECT_EQ((std::vector<std::size_t>(begin, end)), places);
      ++u;
    }
    return 0;
  });
}

TEST_P(TableTest, UpdateMatchesReferenceAtEachThreadCount) {
  const std::int64_t cells = std::int64_t{s.rows} * s.width;
  const auto width = static_cast<std::size_t>(s.width);
  const auto d_rows = normal_values(std::int64_t{s.lookups} * s.width, 4);
  const auto table0 = normal_values(cells, 5);
  std::vector<float> acc0(static_cast<std::size_t>(s.rows), 0.25F);
  const auto runs = at_each_thread_count([&](Context& ctx) {
    TableRowIndex index(s.lookups);
    cpu_ops().table_dedup(ctx, s.lookups, lookups.data(), index);
    Guarded<float> table(table0), acc(acc0);
    const TableAdagradArgs args{&index,     d_rows.data(), s.width, table.data(),
                                acc.data(), 0.2,           1e-10,   0.6};
    EXPECT_TRUE(cpu_ops().table_grad_finite(ctx, args));
    cpu_ops().table_adagrad(ctx, args);
    EXPECT_TRUE(table.intact() && acc.intact());
    return std::pair(table.vector(), acc.vector());
  });
  auto table = to<double>(table0), acc = to<double>(acc0);
  table_adagrad_ref(lookups, to<double>(d_rows), width, 0.2, 1e-10, 0.6, table, acc);
  auto table_naive = table0, acc_naive = acc0;
  table_adagrad_ref(lookups, d_rows, width, 0.2, 1e-10, 0.6, table_naive, acc_naive);
  for (const auto& [t, a] : runs) {
    EXPECT_TRUE(same_bits(runs[0].first, t));
    EXPECT_TRUE(same_bits(runs[0].second, a));
  }
  EXPECT_TRUE(near_reference(runs[0].first, table, table_naive));
  EXPECT_TRUE(near_reference(runs[0].second, acc, acc_naive));
}

TEST_P(TableTest, SeesEveryNonFiniteGradientOfAnIndexedPlace) {
  pipeline::TaskPool pool(2);
  Context ctx(pool);
  TableRowIndex index(s.lookups);
  cpu_ops().table_dedup(ctx, s.lookups, lookups.data(), index);
  auto d_rows = normal_values(std::int64_t{s.lookups} * s.width, 4);
  for (int i = 0; i < s.lookups; i += 1 + s.lookups / 20) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      float& at = d_rows[static_cast<std::size_t>(i * s.width + s.width - 1)];
      const float saved = std::exchange(at, bad);
      EXPECT_EQ(cpu_ops().table_grad_finite(
                    ctx, {&index, d_rows.data(), s.width, nullptr, nullptr, 0, 0, 1}),
                lookups[static_cast<std::size_t>(i)] < 0);
      at = saved;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, TableTest,
                         ::testing::Values(Shape{0, 5, 8}, Shape{1, 1, 1}, Shape{50, 1, 3},
                                           Shape{777, 64, 32}, Shape{5000, 3000, 32},
                                           Shape{3000, 5000000, 1}, Shape{600, 65, 37}));

TEST(TableIndexTest, RowsOfAllDigits) {
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  const std::vector<std::int32_t> lookups{INT32_MAX, 0,         -1,      2047, 2048, 1 << 22,
                                          0,         INT32_MAX, 1 << 22, 2048, -1,   (1 << 22) - 1};
  TableRowIndex index(static_cast<std::int64_t>(lookups.size()));
  cpu_ops().table_dedup(ctx, static_cast<std::int64_t>(lookups.size()), lookups.data(), index);
  const auto ref = dedup_ref(lookups);
  ASSERT_EQ(static_cast<std::size_t>(index.unique), ref.size());
  std::size_t u = 0;
  for (const auto& [row, places] : ref) {
    EXPECT_EQ(index.rows[u], row);
    EXPECT_EQ(static_cast<std::size_t>(index.places[static_cast<std::size_t>(index.starts[u])]),
              places[0]);
    ++u;
  }
}

TEST(TableIndexTest, OfNothing) {
  pipeline::TaskPool pool(1);
  Context ctx(pool);
  TableRowIndex index(0);
  cpu_ops().table_dedup(ctx, 0, nullptr, index);
  EXPECT_EQ(index.unique, 0);
  const TableAdagradArgs args{&index, nullptr, 8, nullptr, nullptr, 0.1, 1e-10, 1.0};
  EXPECT_TRUE(cpu_ops().table_grad_finite(ctx, args));
  cpu_ops().table_adagrad(ctx, args);
}

TEST(TableIndexDeathTest, RefusesMoreLookupsThanItHolds) {
  const std::vector<std::int32_t> lookups(4, 1);
  EXPECT_DEATH(
      {
        pipeline::TaskPool pool(1);
        Context ctx(pool);
        TableRowIndex index(3);
        cpu_ops().table_dedup(ctx, 4, lookups.data(), index);
      },
      "room for the lookups");
}

}  // namespace
}  // namespace paceline::ops
