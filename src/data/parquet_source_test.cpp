#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "data/source.hpp"
#include "data/testing/impressions.hpp"
#include "data/testing/schemas.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Int = arrow::Int64Builder;

constexpr const char* kSmall = R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "h"
candidate_column = "c"
rows = 100
[[features]]
name = "value"
scope = "history"
kind = "number"
history_column = "v"
[[actions]]
name = "like"
bit = 1
)";

struct Fields {
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns;

  std::shared_ptr<arrow::Array>& operator[](const std::string& name) {
    for (auto& [n, array] : columns) {
      if (n == name) return array;
    }
    return columns.emplace_back(name, nullptr).second;
  }
  std::shared_ptr<arrow::Table> table() const {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const auto& [name, array] : columns) {
      if (!array) continue;
      fields.push_back(arrow::field(name, array->type()));
      arrays.push_back(array);
    }
    return arrow::Table::Make(arrow::schema(fields), arrays);
  }
};

// Three rows of kSmall: histories of 2, 0 and 1 events, candidates 1, 2 and 1.
Fields small_fields() {
  Fields f;
  f["user_id"] = array_of<Int>(std::vector<std::int64_t>{1, -2, 3});
  f["h"] = lists_of<Int>({2, 0, 1}, std::vector<std::int64_t>{10, 11, 12});
  f["v"] = lists_of<arrow::FloatBuilder>({2, 0, 1}, std::vector<float>{.5F, 1.5F, 2.5F});
  f["c"] = lists_of<Int>({1, 2, 1}, std::vector<std::int64_t>{20, 21, 22, 23});
  f["candidate_actions"] = lists_of<Int>({1, 2, 1}, std::vector<std::int64_t>{1, 2, 3, 0});
  return f;
}

class ParquetSourceTest : public ::testing::Test {
 protected:
  std::string write(const Fields& fields, std::int64_t row_group_rows = 100) {
    const std::string path = dir_.file("rows.parquet");
    write_parquet(path, *fields.table(), row_group_rows);
    return path;
  }
  // The error of opening, or of reading all blocks.
  Error failure(const std::vector<std::string>& paths, const std::string& toml = kSmall) {
    const auto schema = schema_of(toml);
    const auto source = open_parquet(paths, schema);
    if (!source) return source.error();
    features::RowBlock block;
    for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
      if (auto read = (*source)->read(static_cast<std::int64_t>(b), block); !read) {
        return read.error();
      }
    }
    return Error(Code::kInternal, "no failure");
  }
  Error failure_of(const Fields& fields) { return failure({write(fields, 2)}); }

  const features::ColumnValues& column(const features::RowBlock& block, const std::string& name) {
    for (std::size_t c = 0; c < schema_.columns().size(); ++c) {
      if (schema_.columns()[c].name == name) return block.columns[c];
    }
    PL_CHECK(false, name);
    return block.columns[0];
  }
  features::RowBlock read_first(const Fields& fields) {
    const auto source = open_parquet({write(fields)}, schema_);
    PL_CHECK(source.ok(), source.error().text());
    features::RowBlock block;
    const auto read = (*source)->read(0, block);
    PL_CHECK(read.ok(), read.error().text());
    return block;
  }

  TempDir dir_;
  features::Schema schema_ = schema_of(kSmall);
};

TEST_F(ParquetSourceTest, ReadsListsAndScalars) {
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

TEST_F(ParquetSourceTest, ReadsIntegersOfEveryWidth) {
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

TEST_F(ParquetSourceTest, ReadsNumbersOfEveryKind) {
  Fields f = small_fields();
  f["v"] = lists_of<arrow::DoubleBuilder>({2, 0, 1}, std::vector<double>{.1, 2, -3});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(.1F, 2.F, -3.F));
  f["v"] = lists_of<arrow::Int32Builder>({2, 0, 1}, std::vector<std::int32_t>{4, 5, -6});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(4.F, 5.F, -6.F));
  f["v"] = lists_of<Int>({2, 0, 1}, std::vector<std::int64_t>{7, 8, -9});
  EXPECT_THAT(column(read_first(f), "v").floats, ElementsAre(7.F, 8.F, -9.F));
}

TEST_F(ParquetSourceTest, ReadsEveryListType) {
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

TEST_F(ParquetSourceTest, ReadsActionsAsListsOfBool) {
  Fields f = small_fields();
  const auto bools = array_of<arrow::BooleanBuilder>(std::vector<bool>{
      true, false, true, false, false, false, true, true, true, false, true, false});
  const auto each = *arrow::FixedSizeListArray::FromArrays(bools, 3);
  const auto offsets = array_of<arrow::Int32Builder>(std::vector<std::int32_t>{0, 1, 3, 4});
  f["candidate_actions"] = *arrow::ListArray::FromArrays(*offsets, *each);
  EXPECT_THAT(column(read_first(f), "candidate_actions").ints, ElementsAre(5, 0, 7, 2));
}

TEST_F(ParquetSourceTest, ReadsLongLists) {
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

TEST_F(ParquetSourceTest, ReusesTheMemoryOfABlock) {
  ImpressionOptions o;
  o.rows = 300;
  o.row_group_rows = 100;
  write_impressions(dir_.path() / "many", o);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir_.file("many")}, schema);
  ASSERT_TRUE(source) << source.error().text();
  features::RowBlock block;
  ASSERT_TRUE((*source)->read(0, block));
  ASSERT_TRUE((*source)->read(1, block));
  const auto* data = block.columns[1].ints.data();
  ASSERT_TRUE((*source)->read(0, block));
  EXPECT_EQ(block.columns[1].ints.data(), data);
  EXPECT_EQ(block.first_row, 0);
}

TEST_F(ParquetSourceTest, BlocksAndFingerprint) {
  ImpressionOptions o;
  o.rows = 50;
  o.files = 2;
  o.row_group_rows = 10;
  write_impressions(dir_.path() / "a", o);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir_.file("a")}, schema);
  ASSERT_TRUE(source) << source.error().text();
  const auto& blocks = (*source)->blocks();
  ASSERT_EQ(blocks.size(), 6U);
  EXPECT_EQ((*source)->rows(), 50);
  EXPECT_EQ(blocks[3].first_row, 25);
  EXPECT_EQ(blocks[5].rows, 5);
  EXPECT_THAT(blocks[4].where, HasSubstr("part-0001.parquet, row group 1"));

  // The same files elsewhere are the same dataset; other rows, sizes or names are not.
  const auto fingerprint = [&](const std::string& path) {
    const auto opened = open_parquet({path}, schema);
    PL_CHECK(opened.ok(), opened.error().text());
    return (*opened)->fingerprint();
  };
  fs::copy(dir_.path() / "a", dir_.path() / "b");
  EXPECT_EQ(fingerprint(dir_.file("b")), (*source)->fingerprint());
  EXPECT_EQ(fingerprint(dir_.file("b/part-*.parquet")), (*source)->fingerprint());
  fs::rename(dir_.path() / "b/part-0001.parquet", dir_.path() / "b/part-0002.parquet");
  EXPECT_NE(fingerprint(dir_.file("b")), (*source)->fingerprint());
  o.row_group_rows = 11;
  write_impressions(dir_.path() / "c", o);
  EXPECT_NE(fingerprint(dir_.file("c")), (*source)->fingerprint());
}

TEST_F(ParquetSourceTest, OtherColumnOrderExtraColumnsAndEmptyFiles) {
  const Fields f = small_fields();
  Fields reversed;
  for (auto it = f.columns.rbegin(); it != f.columns.rend(); ++it) reversed[it->first] = it->second;
  reversed["text"] = array_of<arrow::StringBuilder>(std::vector<std::string>{"x", "y", "z"});
  write_parquet(dir_.file("1.parquet"), *f.table(), 100);
  write_parquet(dir_.file("2.parquet"), *f.table()->Slice(0, 0), 100);
  write_parquet(dir_.file("3.parquet"), *reversed.table(), 100);
  const auto source = open_parquet({dir_.path().string()}, schema_);
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ((*source)->rows(), 6);
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), block));
    if (block.rows == 0) continue;
    EXPECT_THAT(column(block, "h").ints, ElementsAre(10, 11, 12));
  }
}

TEST_F(ParquetSourceTest, FindsFiles) {
  const Fields f = small_fields();
  fs::create_directories(dir_.path() / "day=1");
  fs::create_directories(dir_.path() / "_temporary");
  for (const auto* name : {"day=1/x.parquet", "y.parquet", "_temporary/z.parquet", "a.txt"}) {
    write_parquet(dir_.file(name), *f.table(), 100);
  }
  const auto rows = [&](const std::vector<std::string>& paths) {
    const auto source = open_parquet(paths, schema_);
    return source ? (*source)->rows() : -1;
  };
  EXPECT_EQ(rows({dir_.path().string()}), 6);
  EXPECT_EQ(rows({dir_.file("*.parquet")}), 3);
  EXPECT_EQ(rows({dir_.file("*/*.parquet")}), 6);
  EXPECT_EQ(rows({dir_.file("a.txt"), dir_.file("day=1")}), 6);
}

TEST_F(ParquetSourceTest, RefusesPaths) {
  const Fields f = small_fields();
  const std::string path = write(f);
  EXPECT_EQ(failure({}).code(), Code::kNotFound);
  EXPECT_EQ(failure({dir_.file("none")}).code(), Code::kNotFound);
  EXPECT_THAT(failure({dir_.file("none")}).text(), HasSubstr("none"));
  EXPECT_EQ(failure({dir_.file("*.csv")}).code(), Code::kNotFound);
  fs::create_directories(dir_.path() / "empty");
  EXPECT_EQ(failure({dir_.file("empty")}).code(), Code::kNotFound);
  EXPECT_EQ(failure({path, dir_.path().string()}).code(), Code::kInvalidArgument);
  EXPECT_EQ(failure({"s3://bucket/rows"}).code(), Code::kUnavailable);
}

TEST_F(ParquetSourceTest, RefusesFilesThatAreNotWhole) {
  std::ofstream(dir_.file("zero.parquet"));
  std::ofstream(dir_.file("text.parquet")) << "not parquet at all, not parquet at all";
  const std::string path = write(small_fields());
  fs::copy(path, dir_.path() / "cut.parquet");
  fs::resize_file(dir_.path() / "cut.parquet", fs::file_size(path) / 2);
  for (const auto* name : {"zero.parquet", "text.parquet", "cut.parquet"}) {
    const Error e = failure({dir_.file(name)});
    EXPECT_EQ(e.code(), Code::kCorruptData) << e.text();
    EXPECT_THAT(e.text(), HasSubstr(name));
  }
}

TEST_F(ParquetSourceTest, NamesAMissingColumnAndItsNeighbour) {
  Fields f = small_fields();
  f["candidate_action"] = f["candidate_actions"];
  f["candidate_actions"] = nullptr;
  const Error e = failure_of(f);
  EXPECT_EQ(e.code(), Code::kNotFound);
  EXPECT_THAT(e.text(), AllOf(HasSubstr("rows.parquet"), HasSubstr("candidate_actions"),
                              HasSubstr("did you mean candidate_action?")));
}

TEST_F(ParquetSourceTest, RefusesOtherTypes) {
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

TEST_F(ParquetSourceTest, RefusesNulls) {
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

TEST_F(ParquetSourceTest, RefusesUnequalLists) {
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

TEST_F(ParquetSourceTest, RefusesRowsWithoutCandidates) {
  Fields f = small_fields();
  f["c"] = lists_of<Int>({1, 2, 0}, std::vector<std::int64_t>{1, 2, 3});
  f["candidate_actions"] = f["c"];
  EXPECT_THAT(failure_of(f).text(), AllOf(HasSubstr("row 2"), HasSubstr("no candidates")));
}

TEST_F(ParquetSourceTest, RefusesNumbersThatAreNotFinite) {
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

TEST_F(ParquetSourceTest, NamesABrokenRowGroup) {
  ImpressionOptions o;
  o.rows = 400;
  o.row_group_rows = 100;
  const auto paths = write_impressions(dir_.path() / "x", o);
  corrupt_row_group(paths[0], 1);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet(paths, schema);
  ASSERT_TRUE(source) << source.error().text();
  features::RowBlock block;
  EXPECT_TRUE((*source)->read(0, block));
  EXPECT_TRUE((*source)->read(2, block));
  const auto read = (*source)->read(1, block);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kCorruptData) << read.error().text();
  EXPECT_THAT(read.error().text(),
              AllOf(HasSubstr("part-0000.parquet, row group 1"), HasSubstr("column user_id")));
  // A file that shrinks while it is in use.
  fs::resize_file(paths[0], fs::file_size(paths[0]) / 2);
  const auto later = (*source)->read(3, block);
  ASSERT_FALSE(later);
  EXPECT_THAT(later.error().text(), HasSubstr("row group 3"));
  fs::remove(paths[0]);
  EXPECT_EQ((*source)->read(0, block).error().code(), Code::kIo);
}

TEST_F(ParquetSourceTest, SeveralThreadsReadTheSame) {
  ImpressionOptions o;
  o.rows = 200;
  o.row_group_rows = 20;
  write_impressions(dir_.path() / "x", o);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir_.file("x")}, schema);
  ASSERT_TRUE(source) << source.error().text();
  std::vector<features::RowBlock> expected(10);
  for (std::size_t b = 0; b < 10; ++b) {
    ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), expected[b]));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      features::RowBlock block;
      for (std::size_t b = 0; b < 10; ++b) {
        ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), block));
        for (std::size_t c = 0; c < block.columns.size(); ++c) {
          EXPECT_EQ(block.columns[c].ints, expected[b].columns[c].ints);
          EXPECT_EQ(block.columns[c].floats, expected[b].columns[c].floats);
        }
      }
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace paceline::data
