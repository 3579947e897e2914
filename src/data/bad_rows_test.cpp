#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "data/source.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BadRowsTest : public SmallRowsTest {};

TEST_F(BadRowsTest, RefusesNulls) {
  const auto refused = [&](const std::string& name, std::shared_ptr<arrow::Array> array) {
    Fields f = small_fields();
    f[name] = std::move(array);
    const Error e = failure_of(f);
    EXPECT_EQ(e.code(), Code::kCorruptData) << e.text();
    EXPECT_THAT(e.text(), AllOf(HasSubstr("rows.parquet, row group 1"), HasSubstr(name),
                                HasSubstr("row 2"), HasSubstr("null")));
  };
  Int scalars;
  check(scalars.AppendValues({1, 2}));
  check(scalars.AppendNull());
  refused("user_id", *scalars.Finish());
  for (const bool whole_list : {true, false}) {
    auto values = std::make_shared<Int>();
    arrow::ListBuilder lists(arrow::default_memory_pool(), values);
    check(lists.Append());
    check(values->AppendValues({5, 6}));
    check(lists.Append());
    check(whole_list ? lists.AppendNull() : lists.Append());
    if (!whole_list) check(values->AppendNull());
    refused("h", *lists.Finish());
  }
}

TEST_F(BadRowsTest, RefusesUnequalLists) {
  Fields f = small_fields();
  f["v"] = lists_of<arrow::FloatBuilder>({2, 0, 2}, std::vector<float>{1, 2, 3, 4});
  Error e = failure_of(f);
  EXPECT_EQ(e.code(), Code::kCorruptData);
  EXPECT_THAT(e.text(), AllOf(HasSubstr("row group 1"), HasSubstr("column v"), HasSubstr("row 2"),
                              HasSubstr("2 elements"), HasSubstr("have 1")));
  // The same total, another split.
  f["v"] = lists_of<arrow::FloatBuilder>({1, 1, 1}, std::vector<float>{1, 2, 3});
  e = failure_of(f);
  EXPECT_THAT(e.text(), AllOf(HasSubstr("row group 0"), HasSubstr("row 0")));
}

TEST_F(BadRowsTest, RefusesRowsWithoutCandidates) {
  Fields f = small_fields();
  f["c"] = lists_of<Int>({1, 2, 0}, std::vector<std::int64_t>{1, 2, 3});
  f["candidate_actions"] = f["c"];
  EXPECT_THAT(failure_of(f).text(), AllOf(HasSubstr("row 2"), HasSubstr("no candidates")));
}

TEST_F(BadRowsTest, RefusesNumbersThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Fields f = small_fields();
    f["v"] = lists_of<arrow::FloatBuilder>({2, 0, 1}, std::vector<float>{1, 2, bad});
    const Error e = failure_of(f);
    EXPECT_EQ(e.code(), Code::kCorruptData);
    EXPECT_THAT(e.text(), AllOf(HasSubstr("column v"), HasSubstr("row 2"), HasSubstr("finite")));
  }
  // A double beyond the range of a float counts as infinite.
  Fields f = small_fields();
  f["v"] = lists_of<arrow::DoubleBuilder>({2, 0, 1}, std::vector<double>{1, 1e300, 2});
  EXPECT_THAT(failure_of(f).text(), HasSubstr("row 0"));
}

// Every row of a block that was read may be cut, bad ones too, without leaving its memory.
void expect_in_bounds(const features::RowBlock& block, const features::Schema& schema) {
  const auto ascending = [](const std::vector<std::int64_t>& v) {
    return v.front() == 0 && std::is_sorted(v.begin(), v.end());
  };
  EXPECT_TRUE(ascending(block.history_offsets));
  EXPECT_TRUE(ascending(block.candidate_offsets));
  for (std::size_t c = 0; c < block.columns.size(); ++c) {
    const auto shape = schema.columns()[c].shape;
    const std::int64_t n = shape == features::Shape::kScalar ? block.rows
                           : shape == features::Shape::kHistoryList
                               ? block.history_offsets.back()
                               : block.candidate_offsets.back();
    const auto& values = block.columns[c];
    EXPECT_EQ(static_cast<std::int64_t>(values.ints.size() + values.floats.size()), n);
  }
}

std::vector<std::int64_t> rows_of(const features::RowBlock& block) {
  std::vector<std::int64_t> rows;
  for (const auto& bad : block.bad_rows) rows.push_back(bad.row);
  return rows;
}

template <typename Builder, typename T>
std::shared_ptr<arrow::Array> lists_with_nulls(
    const std::vector<std::optional<std::vector<std::optional<T>>>>& rows) {
  auto values = std::make_shared<Builder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (const auto& row : rows) {
    check(row ? lists.Append() : lists.AppendNull());
    if (!row) continue;
    for (const auto& value : *row) check(value ? values->Append(*value) : values->AppendNull());
  }
  return *lists.Finish();
}

// Six rows of kSmall with one history event and one candidate each, numbered by their row.
Fields six_rows() {
  const std::vector<std::int64_t> ones(6, 1);
  const std::vector<std::int64_t> numbers{0, 1, 2, 3, 4, 5};
  Fields f;
  f["user_id"] = array_of<Int>(numbers);
  f["h"] = lists_of<Int>(ones, numbers);
  f["v"] = lists_of<arrow::FloatBuilder>(ones, std::vector<float>{0, 1, 2, 3, 4, 5});
  f["c"] = lists_of<Int>(ones, numbers);
  f["candidate_actions"] = lists_of<Int>(ones, numbers);
  return f;
}

// Bad rows are listed, and the rows between and behind them are as they were written.
TEST_F(BadRowsTest, LeaveTheOtherRowsAlone) {
  const std::vector<std::optional<std::int64_t>> one_null(1);
  using L = std::optional<std::vector<std::optional<std::int64_t>>>;
  using F = std::optional<std::vector<std::optional<float>>>;
  Fields f = six_rows();
  f["h"] = lists_with_nulls<Int, std::int64_t>(
      {L{{0}}, L(one_null), L{{2}}, std::nullopt, L{{4}}, L{{5}}});
  f["v"] = lists_with_nulls<arrow::FloatBuilder, float>(
      {F{{0.F}}, F{{1.F}}, F{{2.F, 99.F, 98.F}}, F{{3.F}}, F{std::vector<std::optional<float>>{}},
       F{{5.F}}});
  const auto block = read_file(write(f), 10);
  expect_in_bounds(block, schema_);
  EXPECT_THAT(rows_of(block), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(block.bad_rows[0].why, AllOf(HasSubstr("rows.parquet, row group 0"),
                                           HasSubstr("column h, row 1"), HasSubstr("null in")));
  EXPECT_THAT(block.bad_rows[1].why, AllOf(HasSubstr("column v, row 2"), HasSubstr("3 elements")));
  EXPECT_THAT(block.bad_rows[2].why, AllOf(HasSubstr("column h, row 3"), HasSubstr("found null")));
  EXPECT_THAT(block.bad_rows[3].why, AllOf(HasSubstr("column v, row 4"), HasSubstr("0 elements")));
  for (const std::size_t r : {std::size_t{0}, std::size_t{5}}) {
    const auto h = static_cast<std::size_t>(block.history_offsets[r]);
    const auto c = static_cast<std::size_t>(block.candidate_offsets[r]);
    EXPECT_EQ(column(block, "h").ints[h], static_cast<std::int64_t>(r));
    EXPECT_EQ(column(block, "v").floats[h], static_cast<float>(r));
    EXPECT_EQ(column(block, "c").ints[c], static_cast<std::int64_t>(r));
  }
}

TEST_F(BadRowsTest, AreListedOnceWithTheirFirstReason) {
  using L = std::optional<std::vector<std::optional<std::int64_t>>>;
  Fields f = six_rows();
  Int users;
  check(users.AppendValues({0, 1, 2, 3, 4}));
  check(users.AppendNull());
  f["user_id"] = *users.Finish();
  f["h"] = lists_with_nulls<Int, std::int64_t>(
      {L{{std::nullopt, std::nullopt}}, L{{1}}, L{{2}}, L{{3}}, L{{4}}, L{{5, std::nullopt}}});
  f["c"] = lists_with_nulls<Int, std::int64_t>({L{{0}}, L{{1}}, std::nullopt,
                                                L{std::vector<std::optional<std::int64_t>>{}},
                                                L{{4}}, L{{5}}});
  f["candidate_actions"] = f["c"];
  const auto block = read_file(write(f), 10);
  expect_in_bounds(block, schema_);
  EXPECT_THAT(rows_of(block), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(block.bad_rows[1].why, AllOf(HasSubstr("column c"), HasSubstr("found null")));
  EXPECT_THAT(block.bad_rows[2].why, HasSubstr("no candidates"));
  EXPECT_THAT(column(block, "user_id").ints, ElementsAre(0, 1, 2, 3, 4, 0));
  EXPECT_THAT(column(block, "h").ints, ElementsAre(0, 0, 1, 2, 3, 4, 5, 0));
}

TEST_F(BadRowsTest, NumbersThatAreNotFiniteAndTooManyBools) {
  Fields f = six_rows();
  f["v"] = lists_of<arrow::FloatBuilder>(
      std::vector<std::int64_t>(6, 1),
      std::vector<float>{0, 1, std::numeric_limits<float>::infinity(), 3, 4, 5});
  const std::vector<bool> bools(65 + 5 * 2, true);
  const auto inner_ends = std::vector<std::int32_t>{0, 65, 67, 69, 71, 73, 75};
  const auto inner = *arrow::ListArray::FromArrays(*array_of<arrow::Int32Builder>(inner_ends),
                                                   *array_of<arrow::BooleanBuilder>(bools));
  f["candidate_actions"] = *arrow::ListArray::FromArrays(
      *array_of<arrow::Int32Builder>(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6}), *inner);
  const auto block = read_file(write(f), 2);
  expect_in_bounds(block, schema_);
  EXPECT_THAT(rows_of(block), ElementsAre(0, 2));
  EXPECT_THAT(block.bad_rows[0].why, HasSubstr("more than 64 bool"));
  EXPECT_THAT(block.bad_rows[1].why, HasSubstr("found inf"));
  EXPECT_THAT(column(block, "candidate_actions").ints, ElementsAre(-1, 3, 3, 3, 3, 3));
  EXPECT_THAT(column(block, "v").floats, ElementsAre(0, 1, 0, 3, 4, 5));
}

TEST_F(BadRowsTest, MasksWithNullsInThem) {
  Fields f = small_fields();
  // Candidates 1, 2 and 1: {[true]}, {null, [false, null]}, {[true, true]}.
  auto bools = std::make_shared<arrow::BooleanBuilder>();
  auto inner = std::make_shared<arrow::ListBuilder>(arrow::default_memory_pool(), bools);
  arrow::ListBuilder outer(arrow::default_memory_pool(), inner);
  const auto mask = [&](const std::vector<std::optional<bool>>& bits) {
    check(inner->Append());
    for (const auto& bit : bits) check(bit ? bools->Append(*bit) : bools->AppendNull());
  };
  check(outer.Append());
  mask({true});
  check(outer.Append());
  check(inner->AppendNull());
  mask({false, std::nullopt});
  check(outer.Append());
  mask({true, true});
  f["candidate_actions"] = *outer.Finish();
  const auto block = read_file(write(f), 1);
  expect_in_bounds(block, schema_);
  EXPECT_THAT(rows_of(block), ElementsAre(1));
  EXPECT_THAT(column(block, "candidate_actions").ints, ElementsAre(1, 0, 0, 3));
}

TEST_F(BadRowsTest, MoreThanAllowedAreAnErrorThatSaysSo) {
  Fields f = six_rows();
  f["v"] = lists_of<arrow::FloatBuilder>({1, 0, 1, 0, 1, 0}, std::vector<float>{0, 2, 4});
  const std::string path = write(f);
  EXPECT_EQ(read_file(path, 3).bad_rows.size(), 3U);
  const auto source = open_parquet({path}, schema_, {2});
  ASSERT_TRUE(source);
  features::RowBlock block;
  const auto read = (*source)->read(0, block);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kCorruptData);
  EXPECT_THAT(read.error().text(), AllOf(HasSubstr("rows.parquet, row group 0"), HasSubstr("row 1"),
                                         HasSubstr("3 rows"), HasSubstr("allowed are 2")));
}

// The same faults within pages of every size, and in the last row of a long row group.
TEST_F(BadRowsTest, InTheLastRowOfManyPages) {
  std::vector<std::int64_t> lengths, values;
  std::vector<float> numbers;
  for (std::int64_t r = 0; r < 500; ++r) {
    lengths.push_back(r % 7);
    for (std::int64_t i = 0; i < r % 7; ++i) {
      values.push_back(r * 10 + i);
      numbers.push_back(static_cast<float>(r));
    }
  }
  numbers.back() = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int64_t> ones(500, 1);
  Fields f;
  f["user_id"] = array_of<Int>(ones);
  f["h"] = lists_of<Int>(lengths, values);
  f["v"] = lists_of<arrow::FloatBuilder>(lengths, numbers);
  f["c"] = lists_of<Int>(ones, ones);
  f["candidate_actions"] = lists_of<Int>(ones, ones);
  for (const int page : {64, 1000, 1 << 20}) {
    const std::string path = dir_.file("pages.parquet");
    write_parquet(path, *f.table(), 1000, page);
    const auto block = read_file(path, 1);
    // 499 % 7 == 2: the last row has values.
    EXPECT_THAT(rows_of(block), ElementsAre(499)) << page;
    EXPECT_EQ(column(block, "h").ints, values) << page;
  }
}

}  // namespace
}  // namespace paceline::data
