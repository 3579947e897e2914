#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <parquet/column_writer.h>
#include <parquet/file_writer.h>

#include <functional>
#include <limits>
#include <memory>

#include "data/source.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ParquetTypesTest : public SmallRowsTest {};

TEST_F(ParquetTypesTest, ReadsListsAndScalars) {
  const auto block = read_first(small_fields());
  EXPECT_EQ(block.rows, 3);
  EXPECT_THAT(block.history_offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(block.candidate_offsets, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(column(block, "user_id").ints, ElementsAre(1, -2, 3));
  EXPECT_THAT(column(block, "h").ints, ElementsAre(10, 11, 12));
  EXPECT_THAT(column(block, "v").floats, ElementsAre(.5F, 1.5F, 2.5F));
  EXPECT_THAT(column(block, "c").ints, ElementsAre(20, 21, 22, 23));
}

template <typename Builder>
void expect_integers(Fields f, const std::vector<typename Builder::value_type>& values,
                     const std::vector<std::int64_t>& expected,
                     const std::function<features::RowBlock(const Fields&)>& read,
                     std::size_t column) {
  f["h"] = lists_of<Builder>({2, 0, 1}, values);
  EXPECT_EQ(read(f).columns[column].ints, expected);
}

TEST_F(ParquetTypesTest, ReadsIntegersOfEveryWidth) {
  const auto read = [this](const Fields& f) { return read_first(f); };
  std::size_t h = 0;
  while (schema_.columns()[h].name != "h") ++h;
  const Fields f = small_fields();
  expect_integers<arrow::Int8Builder>(f, {-1, 2, 127}, {-1, 2, 127}, read, h);
  expect_integers<arrow::UInt8Builder>(f, {1, 2, 255}, {1, 2, 255}, read, h);
  expect_integers<arrow::Int16Builder>(f, {-1, 2, 3}, {-1, 2, 3}, read, h);
  expect_integers<arrow::UInt16Builder>(f, {1, 2, 65535}, {1, 2, 65535}, read, h);
  expect_integers<arrow::Int32Builder>(f, {-1, 2, 3}, {-1, 2, 3}, read, h);
  expect_integers<arrow::UInt32Builder>(f, {1, 2, 4294967295U}, {1, 2, 4294967295}, read, h);
  expect_integers<arrow::UInt64Builder>(f, {1, 2, ~std::uint64_t{0}}, {1, 2, -1}, read, h);
}

TEST_F(ParquetTypesTest, ReadsNumbersOfEveryKind) {
  Fields f = small_fields();
  f["v"] = lists_of<arrow::DoubleBuilder>({2, 0, 1}, std::vector<double>{.1, 2, -3});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(.1F, 2.F, -3.F));
  f["v"] = lists_of<arrow::Int32Builder>({2, 0, 1}, std::vector<std::int32_t>{4, 5, -6});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(4.F, 5.F, -6.F));
  f["v"] = lists_of<Int>({2, 0, 1}, std::vector<std::int64_t>{7, 8, -9});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(7.F, 8.F, -9.F));
}

TEST_F(ParquetTypesTest, ReadsEveryListType) {
  Fields f = small_fields();
  const auto values = array_of<Int>(std::vector<std::int64_t>{10, 11, 12});
  const auto offsets = array_of<Int>(std::vector<std::int64_t>{0, 2, 2, 3});
  f["h"] = *arrow::LargeListArray::FromArrays(*offsets, *values);
  EXPECT_THAT(column(read_first(f), "h").ints, ElementsAre(10, 11, 12));
  f["c"] = *arrow::FixedSizeListArray::FromArrays(
      array_of<Int>(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}), 2);
  f["candidate_actions"] = lists_of<Int>({2, 2, 2}, std::vector<std::int64_t>{1, 1, 1, 1, 1, 1});
  EXPECT_THAT(read_first(f).candidate_offsets, ElementsAre(0, 2, 4, 6));
}

TEST_F(ParquetTypesTest, ReadsActionsAsListsOfBool) {
  Fields f = small_fields();
  const auto bools = array_of<arrow::BooleanBuilder>(std::vector<bool>{
      true, false, true, false, false, false, true, true, true, false, true, false});
  const auto each = *arrow::FixedSizeListArray::FromArrays(bools, 3);
  const auto offsets = array_of<arrow::Int32Builder>(std::vector<std::int32_t>{0, 1, 3, 4});
  f["candidate_actions"] = *arrow::ListArray::FromArrays(*offsets, *each);
  EXPECT_THAT(column(read_first(f), "candidate_actions").ints, ElementsAre(5, 0, 7, 2));
}

TEST_F(ParquetTypesTest, ReadsLongLists) {
  // Lists of several level batches, with every length around the lanes of the fast path.
  std::vector<std::int64_t> lengths{5000, 0, 31, 32, 33, 1, 0, 0, 4096, 12000};
  std::vector<std::int64_t> ones(lengths.size(), 1);
  std::int64_t total = 0;
  for (const auto n : lengths) total += n;
  std::vector<std::int64_t> values;
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < total; ++i) {
    values.push_back(i * 7919);
    numbers.push_back(static_cast<float>(i));
  }
  Fields f;
  f["user_id"] = array_of<Int>(ones);
  f["h"] = lists_of<Int>(lengths, values);
  f["v"] = lists_of<arrow::FloatBuilder>(lengths, numbers);
  f["c"] = lists_of<Int>(ones, ones);
  f["candidate_actions"] = lists_of<Int>(ones, ones);
  const auto block = read_first(f);
  EXPECT_EQ(column(block, "h").ints, values);
  EXPECT_EQ(column(block, "v").floats, numbers);
  std::int64_t end = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    EXPECT_EQ(block.history_offsets[r], end);
    end += lengths[r];
  }
}

TEST_F(ParquetTypesTest, NamesAMissingColumnAndItsNeighbour) {
  Fields f = small_fields();
  f["candidate_action"] = f["candidate_actions"];
  f["candidate_actions"] = nullptr;
  const Error e = failure_of(f);
  EXPECT_EQ(e.code(), Code::kNotFound);
  EXPECT_THAT(e.text(), AllOf(HasSubstr("rows.parquet"), HasSubstr("candidate_actions"),
                              HasSubstr("did you mean candidate_action?")));
}

TEST_F(ParquetTypesTest, RefusesOtherTypes) {
  const auto refused = [&](const std::string& name, std::shared_ptr<arrow::Array> array) {
    Fields f = small_fields();
    f[name] = std::move(array);
    const Error e = failure_of(f);
    EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.text();
    EXPECT_THAT(e.text(), AllOf(HasSubstr("rows.parquet"), HasSubstr("column " + name),
                                HasSubstr("found "), HasSubstr("allowed")));
  };
  const std::vector<std::string> text{"x", "y", "z"};
  refused("user_id", array_of<arrow::StringBuilder>(text));
  refused("user_id", array_of<arrow::FloatBuilder>(std::vector<float>{1, 2, 3}));
  refused("user_id", lists_of<Int>({1, 1, 1}, std::vector<std::int64_t>{1, 2, 3}));
  refused("h", array_of<Int>(std::vector<std::int64_t>{1, 2, 3}));
  refused("h", lists_of<arrow::StringBuilder>({1, 1, 1}, text));
  refused("h", lists_of<arrow::FloatBuilder>({1, 1, 1}, std::vector<float>{1, 2, 3}));
  refused("v", lists_of<arrow::BooleanBuilder>({1, 1, 1}, std::vector<bool>{true, true, true}));
  auto times = std::make_shared<arrow::TimestampArray>(
      arrow::timestamp(arrow::TimeUnit::MICRO), 3,
      array_of<Int>(std::vector<std::int64_t>{1, 2, 3})->data()->buffers[1]);
  refused("user_id", times);
}

TEST_F(ParquetTypesTest, ReadsMasksOfEveryWidth) {
  const auto expect = [&](std::shared_ptr<arrow::Array> masks) {
    Fields f = small_fields();
    f["candidate_actions"] = std::move(masks);
    EXPECT_THAT(column(read_first(f), "candidate_actions").ints, ElementsAre(1, 2, 3, 0));
  };
  const std::vector<std::int64_t> lengths{1, 2, 1};
  expect(lists_of<arrow::UInt8Builder>(lengths, std::vector<std::uint8_t>{1, 2, 3, 0}));
  expect(lists_of<arrow::Int8Builder>(lengths, std::vector<std::int8_t>{1, 2, 3, 0}));
  expect(lists_of<arrow::UInt16Builder>(lengths, std::vector<std::uint16_t>{1, 2, 3, 0}));
  expect(lists_of<arrow::UInt32Builder>(lengths, std::vector<std::uint32_t>{1, 2, 3, 0}));
  expect(lists_of<arrow::UInt64Builder>(lengths, std::vector<std::uint64_t>{1, 2, 3, 0}));
  // The highest bit of a 64-bit mask.
  Fields f = small_fields();
  f["candidate_actions"] = lists_of<arrow::UInt64Builder>(
      lengths, std::vector<std::uint64_t>{std::uint64_t{1} << 63, 0, 0, 0});
  EXPECT_EQ(column(read_first(f), "candidate_actions").ints[0],
            std::numeric_limits<std::int64_t>::min());
}

TEST_F(ParquetTypesTest, ReadsIntegersThatArrowKeepsAsADictionary) {
  Fields f = small_fields();
  const auto indices = array_of<arrow::Int8Builder>(std::vector<std::int8_t>{1, 0, 1});
  const auto values = array_of<Int>(std::vector<std::int64_t>{7, -9});
  f["user_id"] = *arrow::DictionaryArray::FromArrays(indices, values);
  EXPECT_THAT(column(read_first(f), "user_id").ints, ElementsAre(-9, 7, -9));
}

TEST_F(ParquetTypesTest, PassesOverOtherColumnsOfAnyType) {
  Fields f;
  const std::vector<std::string> text{"x", "y", "z"};
  const auto strings = array_of<arrow::StringBuilder>(text);
  const auto numbers = array_of<Int>(std::vector<std::int64_t>{1, 2, 3});
  f["a_text"] = strings;
  f["b_struct"] = *arrow::StructArray::Make({strings, numbers}, std::vector<std::string>{"s", "n"});
  const auto offsets = array_of<arrow::Int32Builder>(std::vector<std::int32_t>{0, 1, 1, 3});
  f["c_map"] = *arrow::MapArray::FromArrays(offsets, strings, numbers);
  arrow::Decimal128Builder decimals(arrow::decimal128(9, 2));
  for (int i = 0; i < 3; ++i) check(decimals.Append(arrow::Decimal128(i)));
  f["d_decimal"] = *decimals.Finish();
  f["e_category"] = *arrow::DictionaryArray::FromArrays(
      array_of<arrow::Int8Builder>(std::vector<std::int8_t>{0, 1, 0}), strings);
  f["f_lists"] = *arrow::ListArray::FromArrays(*offsets, *f["b_struct"]);
  for (const auto& [name, array] : small_fields().columns) f[name] = array;
  const auto block = read_first(f);
  EXPECT_THAT(column(block, "user_id").ints, ElementsAre(1, -2, 3));
  EXPECT_THAT(column(block, "h").ints, ElementsAre(10, 11, 12));
  EXPECT_THAT(column(block, "c").ints, ElementsAre(20, 21, 22, 23));
}

// Lists without the group in between that later writers put there, by Parquet's own writer.
TEST_F(ParquetTypesTest, ReadsListsOfTwoLevels) {
  namespace ps = parquet::schema;
  using parquet::Repetition;
  using parquet::Type;
  const auto list = [](const std::string& name, Type::type type) -> ps::NodePtr {
    const auto element = ps::PrimitiveNode::Make("array", Repetition::REPEATED, type);
    return ps::GroupNode::Make(name, Repetition::OPTIONAL, {element}, parquet::LogicalType::List());
  };
  const auto schema = std::static_pointer_cast<ps::GroupNode>(ps::GroupNode::Make(
      "rows", Repetition::REQUIRED,
      {ps::PrimitiveNode::Make("user_id", Repetition::REQUIRED, Type::INT64),
       list("h", Type::INT64), list("v", Type::FLOAT),
       ps::PrimitiveNode::Make("c", Repetition::REPEATED, Type::INT32),
       ps::PrimitiveNode::Make("candidate_actions", Repetition::REPEATED, Type::INT64)}));
  const std::string path = dir_.file("old.parquet");
  auto stream = *arrow::io::FileOutputStream::Open(path);
  auto writer = parquet::ParquetFileWriter::Open(stream, schema);
  auto* group = writer->AppendRowGroup();
  const auto put = [&](auto type, std::vector<std::int16_t> def, std::vector<std::int16_t> rep,
                       const auto& values) {
    auto* column = static_cast<parquet::TypedColumnWriter<decltype(type)>*>(group->NextColumn());
    const auto n = rep.empty() ? values.size() : rep.size();
    column->WriteBatch(static_cast<std::int64_t>(n), def.data(), rep.data(), values.data());
  };
  put(parquet::Int64Type(), {}, {}, std::vector<std::int64_t>{1, -2, 3});
  put(parquet::Int64Type(), {2, 2, 1, 2}, {0, 1, 0, 0}, std::vector<std::int64_t>{10, 11, 12});
  put(parquet::FloatType(), {2, 2, 1, 2}, {0, 1, 0, 0}, std::vector<float>{.5F, 1.5F, 2.5F});
  put(parquet::Int32Type(), {1, 1, 1, 1}, {0, 0, 1, 0}, std::vector<std::int32_t>{20, 21, 22, 23});
  put(parquet::Int64Type(), {1, 1, 1, 1}, {0, 0, 1, 0}, std::vector<std::int64_t>{1, 2, 3, 0});
  writer->Close();
  check(stream->Close());
  const auto block = read_file(path);
  EXPECT_THAT(block.history_offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(column(block, "h").ints, ElementsAre(10, 11, 12));
  EXPECT_THAT(column(block, "v").floats, ElementsAre(.5F, 1.5F, 2.5F));
  EXPECT_THAT(column(block, "c").ints, ElementsAre(20, 21, 22, 23));
}

}  // namespace
}  // namespace paceline::data
