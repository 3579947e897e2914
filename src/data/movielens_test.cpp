#include "data/movielens.hpp"

#include <arrow/api.h>
#include <glob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>

#include <cstdlib>
#include <fstream>

#include "data/testing/impressions.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;

std::shared_ptr<arrow::Table> read_table(const std::string& path, int* row_groups = nullptr) {
  auto file = *arrow::io::ReadableFile::Open(path);
  // Without reads on Arrow's own threads, which a thread checker cannot follow.
  parquet::ArrowReaderProperties properties;
  properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  PL_CHECK(builder.Open(file).ok(), "a Parquet file");
  auto reader = *builder.properties(properties)->Build();
  if (row_groups != nullptr) *row_groups = reader->num_row_groups();
  return *(*reader->ReadTable())->CombineChunks();
}

std::vector<std::int64_t> ints(const arrow::Array& array) {
  const auto& values = static_cast<const arrow::Int64Array&>(array);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < values.length(); ++i) out.push_back(values.Value(i));
  return out;
}

// Lengths of the lists, then all values: see tools/movielens_digest.py.
std::vector<std::int64_t> words(const arrow::Table& table, int column) {
  const auto& array = *table.column(column)->chunk(0);
  if (array.type_id() == arrow::Type::INT64) return ints(array);
  const auto& lists = static_cast<const arrow::ListArray&>(array);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < lists.length(); ++i) out.push_back(lists.value_length(i));
  const auto values = ints(**lists.Flatten());
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

std::uint64_t digest(const arrow::Table& table) {
  std::uint64_t h = 0xCBF29CE484222325U;
  for (int c = 0; c < table.num_columns(); ++c) {
    for (const auto word : words(table, c)) {
      h = (h ^ static_cast<std::uint64_t>(word)) * 0x100000001B3U;
    }
  }
  return h;
}

std::string installed_interactions() {
  if (const char* path = std::getenv("PACELINE_MOVIELENS"); path != nullptr) return path;
  const std::string pattern =
      PACELINE_VENV "/lib/python3*/site-packages/recbole/dataset_example/ml-100k/ml-100k.inter";
  glob_t found{};
  std::string path;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  ::globfree(&found);
  return path;
}

TEST(MovieLens, RowsOfTheDefinition) {
  const std::string inter = installed_interactions();
  if (inter.empty()) {
    GTEST_SKIP() << "MovieLens-100K is not installed; `make setup` installs it, or set "
                    "PACELINE_MOVIELENS to an ml-100k.inter file";
  }
  struct Expected {
    const char* split;
    std::int64_t rows, candidates;
    std::uint64_t digest;
  };
  // Printed by tools/movielens_digest.py for the output of the definition in Python.
  constexpr Expected kExpected[] = {
      {"train", 9573, 74251, 0xc5456402856be26cU},
      {"valid", 1197, 9118, 0x4196e4b9ba715c4eU},
      {"test", 1197, 9087, 0x876e3dc798735b8fU},
  };
  const TempDir dir;
  const auto counts = import_movielens(inter, dir.path());
  ASSERT_TRUE(counts) << counts.error().text();
  EXPECT_EQ(counts->events, 100000);
  const MovieLensCounts::Split splits[] = {counts->train, counts->valid, counts->test};
  for (std::size_t s = 0; s < 3; ++s) {
    const auto& expected = kExpected[s];
    int row_groups = 0;
    const auto table = read_table(dir.file(std::string(expected.split) + ".parquet"), &row_groups);
    EXPECT_EQ(table->num_rows(), expected.rows);
    EXPECT_EQ(splits[s].rows, expected.rows);
    EXPECT_EQ(splits[s].candidates, expected.candidates);
    EXPECT_EQ(row_groups, (expected.rows + 1023) / 1024);
    EXPECT_EQ(digest(*table), expected.digest) << expected.split;
    EXPECT_THAT(table->ColumnNames(),
                ElementsAre("user_id", "request_time", "history_item_id", "history_actions",
                            "history_time", "candidate_item_id", "candidate_actions"));
  }
}

class SmallMovieLens : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(dir_.file("x.inter")) << text;
    return dir_.file("x.inter");
  }
  fs::path out() const { return dir_.path() / "out"; }
  bool nothing_written() const { return !fs::exists(out()) || fs::is_empty(out()); }
  TempDir dir_;
};

// User 1 has five events in the order of time, then item; user 2 has two.
constexpr const char* kEvents =
    "user\titem\trating\ttime\n"
    "1\t30\t5\t300.0\n1\t10\t1\t100\n2\t7\t4.0\t50\n1\t21\t3\t200\n1\t20\t4\t200\n1\t40\t2\t400\n"
    "2\t8\t5\t60\n";

TEST_F(SmallMovieLens, GroupsEventsOfAUser) {
  const auto counts =
      import_movielens(write(kEvents), out(), {.history = 3, .candidates = 2, .min_history = 2});
  ASSERT_TRUE(counts) << counts.error().text();
  EXPECT_EQ(counts->events, 7);
  // Rows: (20|21 -> 21, 30 after 10, 20) and (40 after 20, 21, 30); cut at 1 and 1.
  EXPECT_EQ(counts->train.rows, 1);
  EXPECT_EQ(counts->valid.rows, 0);
  EXPECT_EQ(counts->test.rows, 1);
  const auto train = read_table((out() / "train.parquet").string());
  EXPECT_THAT(words(*train, 0), ElementsAre(1));
  EXPECT_THAT(words(*train, 1), ElementsAre(200));
  EXPECT_THAT(words(*train, 2), ElementsAre(2, 10, 20));
  EXPECT_THAT(words(*train, 3), ElementsAre(2, 5, 3));
  EXPECT_THAT(words(*train, 4), ElementsAre(2, 100, 200));
  EXPECT_THAT(words(*train, 5), ElementsAre(2, 21, 30));
  EXPECT_THAT(words(*train, 6), ElementsAre(2, 1, 11));
  const auto test = read_table((out() / "test.parquet").string());
  EXPECT_THAT(words(*test, 2), ElementsAre(3, 20, 21, 30));
  EXPECT_THAT(words(*test, 5), ElementsAre(1, 40));
}

TEST_F(SmallMovieLens, NamesAMalformedLine) {
  for (const char* bad : {"1\t2\t3", "1\t2\t3\t4\t5", "a\t2\t3\t4", "1\t2\tx\t4", "", "1 2 3 4"}) {
    const auto counts = import_movielens(
        write("header\n1\t2\t3\t4\n" + std::string(bad) + "\n1\t2\t3\t4\n"), out());
    ASSERT_FALSE(counts) << bad;
    EXPECT_EQ(counts.error().code(), Code::kCorruptData);
    EXPECT_THAT(counts.error().text(), HasSubstr("x.inter:3")) << bad;
    EXPECT_TRUE(nothing_written());
  }
}

TEST_F(SmallMovieLens, RefusesFilesAndOptions) {
  EXPECT_EQ(import_movielens(dir_.file("none"), out()).error().code(), Code::kNotFound);
  EXPECT_EQ(import_movielens(dir_.path(), out()).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(import_movielens(write("header\n"), out()).error().code(), Code::kCorruptData);
  EXPECT_EQ(import_movielens(write(kEvents), out(), {.candidates = 0}).error().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(nothing_written());
  std::ofstream(dir_.file("file"));
  const auto counts = import_movielens(write(kEvents), dir_.path() / "file");
  ASSERT_FALSE(counts);
  EXPECT_EQ(counts.error().code(), Code::kIo);
}

}  // namespace
}  // namespace paceline::data
