#include "data/synth/synth.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <map>
#include <new>
#include <set>
#include <sstream>
#include <string>

#include "core/config.hpp"
#include "data/source.hpp"
#include "data/synth/rows.hpp"
#include "data/synth/world.hpp"
#include "data/testing/impressions.hpp"

namespace paceline::data::synth {
namespace {

namespace fs = std::filesystem;
using data::testing::TempDir;
using ::testing::HasSubstr;

Options small(std::int64_t rows) {
  Options o;
  o.rows = rows;
  o.items = 2000;
  o.history = {{0, 20, 1.0}};
  o.candidates = {4, 12, 1.0};
  o.rows_per_file = 64;
  o.row_group_rows = 24;
  return o;
}

// Relative path to content of every file below the folder.
std::map<std::string, std::string> contents(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    std::stringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files[fs::relative(entry.path(), dir).string()] = text.str();
  }
  return files;
}

std::map<std::string, std::string> made(const Options& options) {
  const TempDir dir;
  const auto counts = synthesize(dir.path() / "out", options);
  EXPECT_TRUE(counts) << (counts ? "" : counts.error().text());
  return contents(dir.path() / "out");
}

// What examples/synth reads.
features::Schema example_schema() {
  const fs::path config_file =
      fs::path(__FILE__).parent_path() / "../../../examples/synth/config.toml";
  std::stringstream text;
  text << std::ifstream(config_file).rdbuf();
  auto config = Config::parse(text.str(), config_file.string());
  PL_CHECK(config.ok(), "the example's config");
  auto schema = features::Schema::from_config(*config);
  PL_CHECK(schema.ok(), schema ? "" : schema.error().text());
  return *schema;
}

TEST(Synth, TheSameBytesAtAnyNumberOfThreads) {
  Options o = small(500);
  o.threads = 1;
  const auto one = made(o);
  EXPECT_EQ(one.size(), 7U + 1 + 1 + 1)
      << "400 rows of train in files of 64, valid, test, synth.json";
  for (const int threads : {2, 3, 16}) {
    o.threads = threads;
    EXPECT_TRUE(made(o) == one) << threads;
  }
  o.seed = 2;
  EXPECT_FALSE(made(o) == one);
}

TEST(Synth, MoreRowsExtendTheData) {
  const auto some = made(small(300)), more = made(small(600));
  int whole = 0;
  for (const auto& [name, bytes] : some) {
    // 240 rows of train: files 0 to 2 are full.
    if (name < "train/part-00003" && name.starts_with("train/")) {
      EXPECT_TRUE(more.at(name) == bytes) << name;
      ++whole;
    }
  }
  EXPECT_EQ(whole, 3);
}

TEST(Synth, OneFolderHoldsTheSameRows) {
  Options o = small(200);
  o.one_folder = true;
  const auto files = made(o);
  ASSERT_EQ(files.size(), 5U);
  EXPECT_TRUE(files.contains("part-00003.parquet"));
  // The first file has the same rows in either layout.
  EXPECT_TRUE(files.at("part-00000.parquet") == made(small(200)).at("train/part-00000.parquet"));
}

TEST(Synth, TheExampleReadsEveryColumnItNames) {
  const TempDir dir;
  const auto counts = synthesize(dir.file("out"), small(250));
  ASSERT_TRUE(counts) << counts.error().text();
  EXPECT_EQ(counts->rows, 250);
  EXPECT_EQ(counts->files, 6);
  const auto schema = example_schema();
  std::set<features::Kind> kinds;
  for (const auto& token : schema.kinds()) {
    for (const auto& f : token.features) kinds.insert(f.kind);
  }
  EXPECT_EQ(kinds.size(), 5U) << "the example shows every kind of feature";
  const auto carried = schema.with_carried({"oracle_probability.fav"});
  const auto source = open_parquet({dir.file("out")}, carried);
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ((*source)->rows(), 250);
  std::int64_t history = 0, candidates = 0;
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    const auto read = (*source)->read(static_cast<std::int64_t>(b), block);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_TRUE(block.bad_rows.empty());
    history += block.history_offsets.back();
    candidates += block.candidate_offsets.back();
    const auto& oracle = block.columns.back().floats;
    for (std::int64_t i = 0; i < block.candidate_offsets.back(); ++i) {
      const float p = oracle[static_cast<std::size_t>(i)];
      ASSERT_TRUE(p > 0.0F && p < 0.14F) << p;
    }
  }
  EXPECT_EQ(history, counts->history_events);
  EXPECT_EQ(candidates, counts->candidates);
}

TEST(Synth, FilesHoldEveryRowOnceInOrderOfTime) {
  const TempDir dir;
  const Options o = small(330);
  ASSERT_TRUE(synthesize(dir.file("out"), o));
  const World world(o);
  RowDrawer drawer(o, world);
  RowColumns expected;
  expected.clear();
  for (std::int64_t r = 0; r < o.rows; ++r) drawer.append(r, expected);

  const auto schema = example_schema();
  const auto column = [&](const std::string& name) {
    for (std::size_t c = 0; c < schema.columns().size(); ++c) {
      if (schema.columns()[c].name == name) return c;
    }
    return schema.columns().size();
  };
  std::vector<std::int64_t> times, users, items, actions;
  const auto collect = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from,
                          std::int64_t n) { to.insert(to.end(), from.begin(), from.begin() + n); };
  const auto source =
      open_parquet({dir.file("out/train"), dir.file("out/valid"), dir.file("out/test")}, schema);
  ASSERT_TRUE(source) << source.error().text();
  features::RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    ASSERT_TRUE((*source)->read(static_cast<std::int64_t>(b), block));
    const auto& columns = block.columns;
    collect(times, columns[column("request_time")].ints, block.rows);
    collect(users, columns[column("user_id")].ints, block.rows);
    collect(items, columns[column("history_item_id")].ints, block.history_offsets.back());
    collect(actions, columns[column("candidate_actions")].ints, block.candidate_offsets.back());
  }
  EXPECT_EQ(times, expected.request_time);
  EXPECT_EQ(users, expected.user_id);
  EXPECT_EQ(items, expected.history_item_id);
  EXPECT_EQ(actions, expected.candidate_actions);
}

TEST(Synth, EveryCompressionIsReadBack) {
  const auto schema = example_schema();
  for (const char* compression : {"zstd", "snappy", "lz4", "gzip", "none"}) {
    const TempDir dir;
    Options o = small(30);
    o.compression = compression;
    ASSERT_TRUE(synthesize(dir.file("out"), o)) << compression;
    const auto source = open_parquet({dir.file("out/train")}, schema);
    ASSERT_TRUE(source) << source.error().text();
    features::RowBlock block;
    const auto read = (*source)->read(0, block);
    EXPECT_TRUE(read) << read.error().text();
  }
}

TEST(Synth, NoRowsAreADataSetToo) {
  EXPECT_EQ(made(small(0)).size(), 1U) << "synth.json";
  EXPECT_EQ(made(small(1)).size(), 2U);
}

TEST(Synth, AFolderWithAnythingElseIsRefused) {
  const TempDir dir;
  const fs::path out = dir.path() / "out";
  ASSERT_TRUE(synthesize(out, small(100)));
  const auto before = contents(out);
  Options o = small(30);
  const auto again = synthesize(out, o);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(again.error().message(), HasSubstr("--overwrite"));
  EXPECT_TRUE(contents(out) == before);

  o.overwrite = true;
  ASSERT_TRUE(synthesize(out, o));
  EXPECT_TRUE(contents(out) == made(small(30))) << "nothing of the old data is left";

  std::ofstream(out / "notes.txt") << "mine";
  const auto foreign = synthesize(out, o);
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message(), HasSubstr("notes.txt"));
  EXPECT_TRUE(fs::exists(out / "notes.txt"));

  const auto file = synthesize(out / "notes.txt", o);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), Code::kInvalidArgument);
}

TEST(Synth, AStopLeavesNothing) {
  const TempDir dir;
  Options o = small(500);
  o.threads = 2;
  std::int64_t seen = 0;
  const auto stopped = synthesize(dir.file("out"), o, [&](std::int64_t rows) {
    seen = rows;
    return rows < 100;
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  EXPECT_TRUE(seen >= 100 && seen < 250) << seen;
  EXPECT_TRUE(fs::is_empty(dir.file("out")));
  EXPECT_TRUE(synthesize(dir.file("out"), o)) << "the same folder can be used again";
}

TEST(Synth, OldDataAreBackWhenTheNewCannotTakeTheirPlace) {
  const TempDir dir;
  const fs::path out = dir.path() / "out";
  ASSERT_TRUE(synthesize(out, small(100)));
  const auto before = contents(out);
  Options o = small(60);
  o.overwrite = true;
  const auto failed = synthesize(out, o, [&](std::int64_t) {
    // No folder can be moved to where this one is; description and test were moved before.
    fs::create_directories(out / ".synth-tmp/.old/train/in the way");
    return true;
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kIo) << failed.error().text();
  EXPECT_TRUE(contents(out) == before);
  EXPECT_FALSE(fs::exists(out / ".synth-tmp"));
  ASSERT_TRUE(synthesize(out, o));
  EXPECT_TRUE(contents(out) == made(small(60)));
}

TEST(Synth, NoMemoryIsAnErrorThatLeavesNothing) {
  const TempDir dir;
  Options o = small(200);
  o.threads = 2;
  const auto failed =
      synthesize(dir.file("out"), o, [](std::int64_t) -> bool { throw std::bad_alloc(); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kOutOfMemory) << failed.error().text();
  EXPECT_TRUE(fs::is_empty(dir.file("out")));
}

TEST(Synth, WhatAKilledCallLeftIsNotDataAndIsRemoved) {
  const TempDir dir;
  const fs::path left = dir.path() / "out/.synth-tmp/train";
  fs::create_directories(left);
  std::ofstream(left / "part-00000.parquet") << "half a file";
  ASSERT_TRUE(synthesize(dir.path() / "out", small(60)));
  EXPECT_TRUE(contents(dir.path() / "out") == made(small(60)));
}

TEST(Synth, AFullDiskIsAnErrorThatLeavesNothing) {
  const TempDir dir;
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = old;
  tight.rlim_cur = 20'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto full = synthesize(dir.file("out"), small(500));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), Code::kIo) << full.error().text();
  EXPECT_THAT(full.error().message(), HasSubstr("part-0000"));
  EXPECT_TRUE(fs::is_empty(dir.file("out")));
}

}  // namespace
}  // namespace paceline::data::synth
