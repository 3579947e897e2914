#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "data/source.hpp"
#include "data/testing/small_rows.hpp"

namespace paceline::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;  // NOLINT: this room's test support
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ParquetSourceTest : public SmallRowsTest {};

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

TEST_F(ParquetSourceTest, SaysWhatTheFilesAreAndWhatBlocksTake) {
  ImpressionOptions o;
  o.rows = 300;
  o.files = 3;
  o.row_group_rows = 40;
  write_impressions(dir_.path() / "x", o);
  const auto schema = schema_of(impression_features());
  const auto source = open_parquet({dir_.file("x")}, schema);
  ASSERT_TRUE(source) << source.error().text();
  const auto& files = (*source)->files();
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[1].relative, "part-0001.parquet");
  EXPECT_EQ(files[1].rows, 100);
  EXPECT_EQ(files[1].blocks, 3);
  EXPECT_EQ(files[1].bytes,
            static_cast<std::int64_t>(fs::file_size(dir_.file("x/part-0001.parquet"))));
  EXPECT_EQ(files[0].digest, files[1].digest);
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), block));
    std::size_t bytes = (block.history_offsets.size() + block.candidate_offsets.size()) * 8;
    for (const auto& c : block.columns) bytes += c.ints.size() * 8 + c.floats.size() * 4;
    EXPECT_LE(static_cast<std::int64_t>(bytes), (*source)->blocks()[b].bytes);
    EXPECT_LE((*source)->blocks()[b].bytes, static_cast<std::int64_t>(bytes) * 2);
  }
}

TEST_F(ParquetSourceTest, TwoSchemasAreRefusedAtOpeningNamingTheFile) {
  const Fields f = small_fields();
  Fields missing = f;
  missing["v"] = nullptr;
  Fields other = f;
  other["h"] = lists_of<arrow::StringBuilder>({2, 0, 1}, std::vector<std::string>{"a", "b", "c"});
  fs::create_directories(dir_.path() / "all");
  for (int i = 0; i < 20; ++i) {
    const std::string name = "all/part-" + std::to_string(100 + i) + ".parquet";
    write_parquet(dir_.file(name), *f.table(), 100);
  }
  write_parquet(dir_.file("all/part-119.parquet"), *missing.table(), 100);
  Error e = failure({dir_.file("all")});
  EXPECT_EQ(e.code(), Code::kNotFound);
  EXPECT_THAT(e.text(), AllOf(HasSubstr("part-119.parquet"), HasSubstr("no column v")));
  // Of several the first in order is named, whichever thread finds which.
  write_parquet(dir_.file("all/part-107.parquet"), *other.table(), 100);
  for (int round = 0; round < 5; ++round) {
    e = failure({dir_.file("all")});
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_THAT(e.text(), AllOf(HasSubstr("part-107.parquet"), HasSubstr("column h")));
  }
}

// A flipped bit of plain values decodes to other values: only the checksum tells.
TEST_F(ParquetSourceTest, ChecksumsOfPagesAreVerified) {
  const auto flip = [](const std::string& path) {
    std::int64_t at = 0;
    {
      const auto reader = parquet::ParquetFileReader::OpenFile(path);
      const auto chunk = reader->metadata()->RowGroup(0)->ColumnChunk(0);
      at = chunk->data_page_offset() + chunk->total_compressed_size() - 1;
    }
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  };
  for (const bool checksum : {false, true}) {
    parquet::WriterProperties::Builder builder;
    builder.disable_dictionary()->compression(parquet::Compression::UNCOMPRESSED);
    if (checksum) builder.enable_page_checksum();
    const std::string path = write_with(small_fields(), builder.build());
    flip(path);
    const Error e = failure({path});
    EXPECT_EQ(e.code(), checksum ? Code::kCorruptData : Code::kInternal) << e.text();
    if (checksum) {
      EXPECT_THAT(e.text(), AllOf(HasSubstr("row group 0"), HasSubstr("user_id")));
    }
  }
}

TEST_F(ParquetSourceTest, AFileWithoutRowsIsADatasetWithoutRows) {
  const auto source =
      open_parquet({write_with(small_fields(), parquet::default_writer_properties())}, schema_);
  ASSERT_TRUE(source);
  write_parquet(dir_.file("none.parquet"), *small_fields().table()->Slice(0, 0), 100);
  const auto none = open_parquet({dir_.file("none.parquet")}, schema_);
  ASSERT_TRUE(none) << none.error().text();
  EXPECT_EQ((*none)->rows(), 0);
  features::RowBlock block;
  for (std::size_t b = 0; b < (*none)->blocks().size(); ++b) {
    ASSERT_TRUE((*none)->read(static_cast<std::int64_t>(b), block));
    EXPECT_EQ(block.rows, 0);
  }
}

}  // namespace
}  // namespace paceline::data
