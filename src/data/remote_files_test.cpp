#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/clock.hpp"
#include "data/dataset_files.hpp"
#include "data/source.hpp"
#include "data/testing/s3_server.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RemoteFilesTest : public SmallRowsTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the threads of the S3 client are not seen by this sanitizer";
#endif
    // Nothing of the machine's own settings, and no search for them on the network.
    for (const auto* name : {"AWS_ENDPOINT_URL", "AWS_PROFILE", "http_proxy", "HTTP_PROXY"}) {
      ::unsetenv(name);
    }
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    for (const auto* folder : {"bucket/rows/dt=1", "bucket/rows/dt=2", "bucket/rows/_tmp"}) {
      fs::create_directories(dir_.path() / folder);
    }
    ImpressionOptions o;
    o.rows = 60;
    o.row_group_rows = 20;
    const auto table = impression_table(o, 0, o.rows);
    for (const auto* name : {"dt=1/a.parquet", "dt=2/b.parquet", "_tmp/c.parquet"}) {
      write_parquet(dir_.file(std::string("bucket/rows/") + name), *table, o.row_group_rows);
    }
  }

  std::vector<std::string> names(const std::string& entry) {
    const auto files = find_files({entry});
    if (!files) return {files.error().text()};
    std::vector<std::string> found;
    for (const auto& file : *files) found.push_back(file.relative);
    return found;
  }

  features::Schema impressions_ = schema_of(impression_features());
};

TEST_F(RemoteFilesTest, FoldersFilesAndPatternsOfABucket) {
  const S3Server server(dir_.path());
  const std::string end = server.options();
  EXPECT_THAT(names("s3://bucket/rows" + end), ElementsAre("dt=1/a.parquet", "dt=2/b.parquet"));
  EXPECT_THAT(names("s3://bucket/rows/" + end), ElementsAre("dt=1/a.parquet", "dt=2/b.parquet"));
  EXPECT_THAT(names("s3://bucket/rows/dt=2/b.parquet" + end), ElementsAre("b.parquet"));
  EXPECT_THAT(names("s3://bucket/rows/dt=*/*.parquet" + end),
              ElementsAre("dt=1/a.parquet", "dt=2/b.parquet"));
  EXPECT_THAT(names("s3://bucket/**/a.parquet" + end), ElementsAre("rows/dt=1/a.parquet"));
  for (const auto* none : {"s3://bucket/nothing", "s3://bucket/rows/*.csv"}) {
    const auto files = find_files({none + end});
    ASSERT_FALSE(files) << none;
    EXPECT_EQ(files.error().code(), Code::kNotFound) << files.error().text();
    EXPECT_THAT(files.error().text(), HasSubstr(none));
  }
}

// The same rows and the same fingerprint as the folder itself.
TEST_F(RemoteFilesTest, ReadsWhatTheFolderHolds) {
  const S3Server server(dir_.path());
  const auto local = open_parquet({dir_.file("bucket/rows")}, impressions_);
  const auto remote = open_parquet({"s3://bucket/rows" + server.options()}, impressions_);
  ASSERT_TRUE(local) << local.error().text();
  ASSERT_TRUE(remote) << remote.error().text();
  EXPECT_EQ((*remote)->fingerprint(), (*local)->fingerprint());
  EXPECT_EQ((*remote)->files(), (*local)->files());
  ASSERT_EQ((*remote)->blocks().size(), 6U);
  const int before = server.requests();
  for (std::int64_t b = 0; b < 6; ++b) {
    features::RowBlock ours, theirs;
    ASSERT_TRUE((*local)->read(b, ours));
    const auto read = (*remote)->read(b, theirs);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(theirs.history_offsets, ours.history_offsets);
    for (std::size_t c = 0; c < ours.columns.size(); ++c) {
      EXPECT_EQ(theirs.columns[c].ints, ours.columns[c].ints);
      EXPECT_EQ(theirs.columns[c].floats, ours.columns[c].floats);
    }
  }
  // Columns that lie together are asked for together.
  EXPECT_LE(server.requests() - before, 12);
}

TEST_F(RemoteFilesTest, AnObjectThatIsGoneOrBrokenIsNamed) {
  S3Server server(dir_.path());
  const auto source = open_parquet({"s3://bucket/rows" + server.options()}, impressions_);
  ASSERT_TRUE(source) << source.error().text();
  server.break_object("/bucket/rows/dt=2/b.parquet");
  features::RowBlock block;
  EXPECT_TRUE((*source)->read(0, block));
  const auto read = (*source)->read(4, block);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kIo) << read.error().text();
  EXPECT_THAT(read.error().text(), HasSubstr("s3://bucket/rows/dt=2/b.parquet, row group 1"));
  fs::remove(dir_.path() / "bucket/rows/dt=1/a.parquet");
  EXPECT_FALSE((*source)->read(0, block));
}

TEST_F(RemoteFilesTest, AnEndpointThatIsNotThereIsAnErrorSoonAndKeepsSecrets) {
  const auto start = Clock::now();
  const auto files =
      find_files({"s3://me:hush@bucket/rows?endpoint_override=127.0.0.1:1&scheme=http&region=x"});
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code(), Code::kUnavailable);
  EXPECT_THAT(files.error().text(), AllOf(HasSubstr("s3://bucket/rows"), Not(HasSubstr("hush"))));
  EXPECT_LT(seconds_since(start), 20.0);
}

TEST_F(RemoteFilesTest, UnknownStorageIsRefused) {
  const auto files = find_files({"tape://drive/rows"});
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(files.error().text(), HasSubstr("tape://drive/rows"));
}

}  // namespace
}  // namespace paceline::data
