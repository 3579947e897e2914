#include "data/dataset_listing.hpp"

#include <gtest/gtest.h>

namespace paceline::data {
namespace {

const std::vector<FileInfo> kFiles{{"a.parquet", 100, 10, 1, 1},
                                   {"b/c.parquet", 200, 20, 2, ~0ULL},
                                   {"d \"q\".parquet", 7, 0, 0, 3}};

TEST(DatasetListing, ReadsBack) {
  const auto read = read_listing(listing_text(kFiles));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(*read, kFiles);
  EXPECT_TRUE(read_listing("")->empty());
}

TEST(DatasetListing, RefusesWhatIsNoListing) {
  for (const char* text : {"x", "[]\n", "{}\n", "{\"file\": 3}\n"}) {
    EXPECT_FALSE(read_listing(text)) << text;
  }
}

TEST(DatasetListing, NamesTheFirstFileThatDiffers) {
  EXPECT_EQ(first_difference(kFiles, kFiles), "");
  auto other = kFiles;
  other[1].rows = 21;
  EXPECT_EQ(first_difference(kFiles, other),
            "b/c.parquet had 200 bytes, 20 rows in 2 row groups, now 200 bytes, 21 rows in 2 row "
            "groups");
  other = kFiles;
  other[2].digest = 4;
  EXPECT_EQ(first_difference(kFiles, other),
            "d \"q\".parquet has the same size (7 bytes, 0 rows in 0 row groups), but other row "
            "groups");
  other = kFiles;
  other.erase(other.begin() + 1);
  EXPECT_EQ(first_difference(kFiles, other), "b/c.parquet is gone");
  EXPECT_EQ(first_difference(other, kFiles),
            "b/c.parquet is new (200 bytes, 20 rows in 2 row groups)");
  other = kFiles;
  other.pop_back();
  EXPECT_EQ(first_difference(kFiles, other), "d \"q\".parquet is gone");
  EXPECT_EQ(first_difference(other, kFiles),
            "d \"q\".parquet is new (7 bytes, 0 rows in 0 row groups)");
  other = kFiles;
  std::swap(other[0], other[1]);
  EXPECT_EQ(first_difference(kFiles, other), "b/c.parquet stands where a.parquet was");
}

}  // namespace
}  // namespace paceline::data
