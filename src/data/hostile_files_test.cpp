// Files that declare what is not there: refused, without memory for what they declare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "data/source.hpp"
#include "data/testing/schemas.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What becomes of the one block of a file in the fuzz corpus.
std::string outcome(const std::string& file) {
  const auto schema = testing::schema_of(R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item"
candidate_column = "candidate_item"
rows = 100
[[actions]]
name = "like"
bit = 1
)")
                          .without_labels();
  const auto source = open_parquet({std::string(PACELINE_CORPUS) + "/row_group/" + file}, schema);
  if (!source) return source.error().text();
  features::RowBlock block;
  const auto read = (*source)->read(0, block);
  return read ? "read" : read.error().text();
}

TEST(HostileFiles, MoreRowsThanValues) {
  EXPECT_THAT(outcome("lie.parquet"), AllOf(HasSubstr("lie.parquet, row group 0"),
                                            HasSubstr("268435456 rows, but 1 values")));
}

TEST(HostileFiles, FewerValuesThanTheFooterSays) {
  EXPECT_THAT(outcome("short.parquet"), HasSubstr("fewer values than the footer says"));
}

TEST(HostileFiles, ListsWithinListsWithoutEnd) {
  EXPECT_THAT(outcome("deep130.parquet"),
              AllOf(HasSubstr("deep130.parquet"), HasSubstr("history_item")));
}

// Of the same size, and with a footer that still fits.
TEST(HostileFiles, AFileThatWasWrittenAgainIsNamed) {
  const testing::TempDir dir;
  const auto file = dir.file("rows.parquet");
  testing::write_parquet(file, *testing::small_fields().table(), 3);
  const auto source = open_parquet({file}, testing::schema_of(testing::kSmall));
  ASSERT_TRUE(source) << source.error().text();
  features::RowBlock block;
  ASSERT_TRUE((*source)->read(0, block));
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) + std::chrono::seconds(2));
  const auto read = (*source)->read(0, block);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().text(),
              AllOf(HasSubstr("rows.parquet"), HasSubstr("changed since the start")));
}

// Which of two is meant only their owner knows; found among few columns and among many.
TEST(HostileFiles, AColumnThatIsThereTwice) {
  for (const int others : {0, 40}) {
    const testing::TempDir dir;
    auto fields = testing::small_fields();
    const auto user = fields["user_id"], candidate = fields["c"];
    for (int i = 0; i < others; ++i) fields["other" + std::to_string(i)] = user;
    fields.columns.emplace_back("c", candidate);
    testing::write_parquet(dir.file("rows.parquet"), *fields.table(), 2);
    const auto opened =
        open_parquet({dir.file("rows.parquet")}, testing::schema_of(testing::kSmall));
    ASSERT_FALSE(opened) << others;
    EXPECT_THAT(opened.error().text(), HasSubstr("column c: found twice"));
  }
}

TEST(HostileFiles, ManyBadElementsAreOneBadRow) {
  const testing::TempDir dir;
  auto fields = testing::small_fields();
  const std::vector<std::int64_t> lengths{2, 0, 50};
  fields["h"] = testing::lists_of<testing::Int>(lengths, std::vector<std::int64_t>(52, 1));
  fields["v"] = testing::lists_of<arrow::FloatBuilder>(lengths, std::vector<float>(52, NAN));
  testing::write_parquet(dir.file("rows.parquet"), *fields.table(), 3);
  const auto opened = open_parquet({dir.file("rows.parquet")}, testing::schema_of(testing::kSmall),
                                   {.max_bad_rows = 2});
  ASSERT_TRUE(opened) << opened.error().text();
  features::RowBlock block;
  ASSERT_TRUE((*opened)->read(0, block));
  ASSERT_EQ(block.bad_rows.size(), 2U);
  EXPECT_EQ(block.bad_rows[1].row, 2);
}

}  // namespace
}  // namespace paceline::data
