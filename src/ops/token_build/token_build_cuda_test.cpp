// Token building on the GPU against the fp64 reference of the CPU op and plain loops.
#include "ops/token_build/token_build_cuda.hpp"

#include <cmath>
#include <limits>
#include <ostream>

#include "device/testing/gpu_test.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"
#include "ops/token_build/token_build_ref.hpp"

namespace paceline::ops {
namespace {

using namespace testing;  // NOLINT
using device::BFloat16;
using device::testing::DeviceArray;

enum class Layout { kAll, kTablesFirst, kNoTable };

struct Shape {
  int entries, capacity, table_width;
  Layout layout;
};
void PrintTo(const Shape& s, std::ostream* os) {
  *os << s.entries << " of " << s.capacity << "x" << s.table_width << " layout "
      << static_cast<int>(s.layout);
}

constexpr int kTableRowCount = 50;
constexpr int kModel = 24;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A kind's entries, on both machines; the arrays go on past the entries with what must not show.
struct Problem {
  explicit Problem(const Shape& s) : shape(s), table_values(table_of(s)) {
    table_a = ints(2, kTableRowCount, 11);
    table_b = ints(3, kTableRowCount, 12);
    one_hot = ints(1, 5, 13);
    numbers = normal_values(s.capacity, 14);
    for (int i = 0; i < s.capacity; ++i) {
      masks.push_back(random_below(1U << 9, static_cast<std::uint64_t>(i), 15));
    }
    const TokenInput a{TokenColumn::kTableRows, 2, table_a.data(), nullptr, nullptr};
    const TokenInput b{TokenColumn::kTableRows, 3, table_b.data(), nullptr, nullptr};
    const TokenInput hot{TokenColumn::kOneHot, 5, one_hot.data(), nullptr, nullptr};
    const TokenInput number{TokenColumn::kNumber, 1, nullptr, numbers.data(), nullptr};
    const TokenInput mask{TokenColumn::kMask, 9, nullptr, nullptr, masks.data()};
    if (s.layout == Layout::kAll) inputs = {number, a, hot, mask, b};
    if (s.layout == Layout::kTablesFirst) inputs = {a, b, hot};
    if (s.layout == Layout::kNoTable) inputs = {mask, number};
    columns = TokenColumns(inputs, s.table_width);
    args.entries = s.entries;
    args.inputs = inputs;
    args.table_width = s.table_width;
    args.width = columns.width;
    args.model = kModel;
    args.multiplier = 3.5F;
  }
  Problem(const Problem&) = delete;

  std::vector<std::int32_t> ints(int per_entry, std::uint64_t below, std::uint64_t id) const {
    std::vector<std::int32_t> v;
    for (int i = 0; i < shape.capacity * per_entry; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      v.push_back(static_cast<std::int32_t>(random_below(below + 1, at, id)) - 1);
    }
    return v;
  }
  static std::vector<float> table_of(const Shape& s) {
    return normal_values(std::int64_t{kTableRowCount} * s.table_width, 1);
  }

  // X for `entries` of the batch, over an X full of NaN.
  template <typename T>
  std::vector<float> gather(int entries) const {
    const DeviceArray<std::int32_t> a(table_a), b(table_b), hot(one_hot),
        count(std::vector<std::int32_t>{entries});
    const DeviceArray<float> number(numbers), table(table_values);
    const DeviceArray<std::uint64_t> mask(masks);
    std::vector<TokenInputCuda> in;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const void* values = inputs[i].floats != nullptr        ? number.data()
                           : inputs[i].masks != nullptr       ? mask.data()
                           : inputs[i].ints == table_a.data() ? a.data()
                           : inputs[i].ints == table_b.data() ? b.data()
                                                              : static_cast<void*>(hot.data());
      in.push_back({inputs[i].column, inputs[i].width, columns.first_column[i], values});
    }
    const DeviceArray<TokenInputCuda> d_in(in);
    const DeviceArray<T> x(std::vector<T>(
        static_cast<std::size_t>(shape.capacity) * static_cast<std::size_t>(columns.k_padded),
        as<T>(kNan)));
    const device::Stream stream("test");
    token_gather_cuda<T>(stream,
                         {shape.capacity, count.data(), d_in.data(), static_cast<int>(in.size()),
                          columns.k_padded, table.data(), shape.table_width, x.data()});
    stream.synchronize();
    return all_as_float(x.read());
  }

  Shape shape;
  std::vector<std::int32_t> table_a, table_b, one_hot;
  std::vector<float> numbers, table_values;
  std::vector<std::uint64_t> masks;
  std::vector<TokenInput> inputs;
  TokenColumns columns{{}, 1};
  TokenBuildArgs args;
};

class GpuTokenBuild : public device::testing::GpuTest,
                      public ::testing::WithParamInterface<Shape> {};

template <typename T>
void expect_features(const Problem& p, int entries, const std::vector<float>& x) {
  TokenBuildArgs args = p.args;
  args.entries = entries;
  const auto features = token_features_ref(args, p.table_values);
  const auto k = static_cast<std::size_t>(p.columns.k_padded);
  const auto width = static_cast<std::size_t>(p.columns.width);
  ASSERT_EQ(x.size(), static_cast<std::size_t>(p.shape.capacity) * k);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int32_t column = p.columns.weight_column[i % k];
    float expected = 0.0F;
    if (column >= 0 && i / k < static_cast<std::size_t>(entries)) {
      expected = as_float(as<T>(features[i / k * width + static_cast<std::size_t>(column)]));
    }
    ASSERT_EQ(x[i], expected) << "entry " << i / k << ", column " << i % k;
  }
}

TEST_P(GpuTokenBuild, GathersEveryFeatureAndZeros) {
  const Problem p(GetParam());
  for (const int entries : {p.shape.entries, 0, p.shape.capacity}) {
    expect_features<float>(p, entries, p.gather<float>(entries));
    expect_features<BFloat16>(p, entries, p.gather<BFloat16>(entries));
  }
}

TEST_P(GpuTokenBuild, RowsTimesPaddedWeightsAreTheTokens) {
  const Problem p(GetParam());
  const auto w = normal_values(std::int64_t{kModel} * p.columns.width, 2);
  const DeviceArray<float> d_w(w);
  const DeviceArray<std::int32_t> columns(p.columns.weight_column);
  const auto k = static_cast<std::size_t>(p.columns.k_padded);
  const DeviceArray<float> padded(std::vector<float>(kModel * k, kNan));
  const device::Stream stream("test");
  token_weight_pad_cuda<float>(stream, {kModel, p.columns.width, p.columns.k_padded, columns.data(),
                                        d_w.data(), padded.data()});
  stream.synchronize();
  const auto n = static_cast<std::size_t>(p.shape.entries);
  auto x = to<double>(p.gather<float>(p.shape.entries));
  x.resize(n * k);
  const auto y = linear_ref(n, k, kModel, x, to<double>(padded.read()));
  const auto ref = token_build_ref(p.args, to<double>(p.table_values), to<double>(w));
  ASSERT_EQ(y.size(), ref.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    ASSERT_NEAR(p.args.multiplier * y[i], ref[i], 1e-9) << i;
  }
}

TEST_P(GpuTokenBuild, WeightsGoThereAndBack) {
  const Problem p(GetParam());
  const auto w = normal_values(std::int64_t{kModel} * p.columns.width, 2);
  const DeviceArray<float> d_w(w), back(std::vector<float>(w.size(), kNan));
  const DeviceArray<std::int32_t> columns(p.columns.weight_column);
  const DeviceArray<std::int32_t> padded_columns(p.columns.padded_column);
  const auto k = static_cast<std::size_t>(p.columns.k_padded);
  const DeviceArray<float> padded(std::vector<float>(kModel * k, kNan));
  const DeviceArray<BFloat16> half(std::vector<BFloat16>(kModel * k, as<BFloat16>(kNan)));
  const device::Stream stream("test");
  token_weight_pad_cuda<float>(stream, {kModel, p.columns.width, p.columns.k_padded, columns.data(),
                                        d_w.data(), padded.data()});
  token_weight_pad_cuda<BFloat16>(stream, {kModel, p.columns.width, p.columns.k_padded,
                                           columns.data(), d_w.data(), half.data()});
  token_weight_unpad_cuda(stream, {kModel, p.columns.width, p.columns.k_padded,
                                   padded_columns.data(), padded.data(), back.data()});
  stream.synchronize();
  EXPECT_TRUE(same_bits(back.read(), w));
  EXPECT_TRUE(same_bits(all_as_float(half.read()), all_as_float(all_as<BFloat16>(padded.read()))));
}

INSTANTIATE_TEST_SUITE_P(
    Gpu, GpuTokenBuild,
    ::testing::Values(Shape{0, 0, 8, Layout::kAll}, Shape{1, 1, 8, Layout::kAll},
                      Shape{95, 130, 3, Layout::kAll}, Shape{97, 97, 32, Layout::kTablesFirst},
                      Shape{192, 300, 5, Layout::kNoTable}, Shape{193, 200, 12, Layout::kAll},
                      Shape{70, 77, 128, Layout::kAll}, Shape{31, 40, 1032, Layout::kAll},
                      Shape{3300, 4001, 64, Layout::kTablesFirst}));

}  // namespace
}  // namespace paceline::ops
