#include <numeric>

#include "ops/op_table.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT

struct Shape {
  int n, rows, width;
};

class RowsTest : public ::testing::TestWithParam<Shape> {
 protected:
  Shape s = GetParam();
  std::size_t width = static_cast<std::size_t>(s.width);

  // n distinct rows in a shuffled order.
  std::vector<std::int32_t> distinct() const {
    std::vector<std::int32_t> all(static_cast<std::size_t>(s.rows));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_below(i, i, 8)]);
    all.resize(static_cast<std::size_t>(s.n));
    return all;
  }
};

TEST_P(RowsTest, GatherCopies) {
  const auto in = normal_values(s.rows * s.width, 1);
  std::vector<std::int32_t> index;
  for (int i = 0; i < s.n; ++i) {
    index.push_back(static_cast<std::int32_t>(
        random_below(static_cast<std::uint64_t>(s.rows), static_cast<std::uint64_t>(i), 2)));
  }
  std::vector<float> expected;
  for (const auto row : index) {
    const auto from = in.begin() + std::ptrdiff_t{row} * s.width;
    expected.insert(expected.end(), from, from + s.width);
  }
  for (const auto& got : at_each_thread_count([&](Context& ctx) {
         Guarded<float> out(s.n * s.width);
         cpu_ops().gather_rows(ctx, s.n, s.width, index.data(), in.data(), out.data());
         EXPECT_TRUE(out.intact());
         return out.vector();
       })) {
    EXPECT_TRUE(same_bits(expected, got));
  }
}

TEST_P(RowsTest, ScatterAddsToItsRowsOnly) {
  const auto in = normal_values(s.n * s.width, 1);
  const auto start = normal_values(s.rows * s.width, 2);
  const auto index = distinct();
  auto expected = start;
  for (std::size_t i = 0; i < index.size(); ++i) {
    for (std::size_t c = 0; c < width; ++c) {
      expected[static_cast<std::size_t>(index[i]) * width + c] += in[i * width + c];
    }
  }
  for (const auto& got : at_each_thread_count([&](Context& ctx) {
         Guarded<float> out(start);
         cpu_ops().scatter_add_rows(ctx, s.n, s.width, index.data(), in.data(), out.data());
         EXPECT_TRUE(out.intact());
         return out.vector();
       })) {
    EXPECT_TRUE(same_bits(expected, got));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, RowsTest,
                         ::testing::Values(Shape{0, 3, 8}, Shape{1, 1, 1}, Shape{64, 65, 128},
                                           Shape{67, 300, 37}, Shape{1025, 1025, 13}));

}  // namespace
}  // namespace paceline::ops
