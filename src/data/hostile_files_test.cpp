// Files that declare what is not there: refused, without memory for what they declare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/source.hpp"
#include "data/testing/schemas.hpp"

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

}  // namespace
}  // namespace paceline::data
