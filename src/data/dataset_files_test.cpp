#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/dataset_files.hpp"
#include "data/path_pattern.hpp"
#include "data/source.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;  // NOLINT: this room's test support
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetFilesTest : public SmallRowsTest {};

TEST_F(DatasetFilesTest, FindsFiles) {
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

TEST_F(DatasetFilesTest, RefusesPaths) {
  const Fields f = small_fields();
  const std::string path = write(f);
  EXPECT_EQ(failure({}).code(), Code::kNotFound);
  EXPECT_EQ(failure({dir_.file("none")}).code(), Code::kNotFound);
  EXPECT_THAT(failure({dir_.file("none")}).text(), HasSubstr("none"));
  EXPECT_EQ(failure({dir_.file("*.csv")}).code(), Code::kNotFound);
  fs::create_directories(dir_.path() / "empty");
  EXPECT_EQ(failure({dir_.file("empty")}).code(), Code::kNotFound);
  EXPECT_EQ(failure({path, dir_.path().string()}).code(), Code::kInvalidArgument);
  EXPECT_EQ(failure({"tape://drive/rows"}).code(), Code::kInvalidArgument);
}

TEST_F(DatasetFilesTest, PatternsOfAnyDepth) {
  const Fields f = small_fields();
  for (const auto* folder : {"rows/a/b", "rows/_temporary", "rows/.hidden", "rows/a/_tmp"}) {
    fs::create_directories(dir_.path() / folder);
    write_parquet(dir_.file(std::string(folder) + "/x.parquet"), *f.table(), 100);
  }
  write_parquet(dir_.file("rows/y.parquet"), *f.table(), 100);
  const auto found = [&](const std::string& entry) {
    const auto files = find_files({entry});
    std::vector<std::string> names;
    if (!files) return names;
    for (const auto& file : *files) names.push_back(file.relative);
    return names;
  };
  const std::string root = dir_.file("rows");
  EXPECT_THAT(found(root + "/**"), ElementsAre("a/b/x.parquet", "y.parquet"));
  EXPECT_THAT(found(root + "/**/*.parquet"), ElementsAre("a/b/x.parquet", "y.parquet"));
  EXPECT_THAT(found(root + "/**/b/*"), ElementsAre("a/b/x.parquet"));
  EXPECT_THAT(found(root + "/[xyz].parquet"), ElementsAre("y.parquet"));
  EXPECT_THAT(found(root + "/?/b/x.parquet"), ElementsAre("a/b/x.parquet"));
  EXPECT_THAT(found(root), ElementsAre("a/b/x.parquet", "y.parquet"));
  EXPECT_THAT(found("file://" + root), ElementsAre("a/b/x.parquet", "y.parquet"));
  EXPECT_THAT(found(root + "/*/nothing"), ElementsAre());
}

TEST(PathPattern, NamesAndFolders) {
  EXPECT_TRUE(path_matches("**", "a"));
  EXPECT_TRUE(path_matches("**/c", "c"));
  EXPECT_TRUE(path_matches("**/c", "a/b/c"));
  EXPECT_TRUE(path_matches("a/**/c", "a/c"));
  EXPECT_TRUE(path_matches("a*/[0-9].*", "abc/7.parquet"));
  EXPECT_FALSE(path_matches("*", "a/b"));
  EXPECT_FALSE(path_matches("*", ".a"));
  EXPECT_FALSE(path_matches("**/c", "_a/c"));
  EXPECT_FALSE(path_matches("a/**", "b/c"));
  EXPECT_EQ(pattern_root("/data/x*/y"), "/data");
  EXPECT_EQ(pattern_root("*.parquet"), ".");
  EXPECT_EQ(pattern_root("/*.parquet"), "/");
}

}  // namespace
}  // namespace paceline::data
