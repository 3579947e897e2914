// `paceline data inspect`: what it says is what training does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

namespace dt = data::testing;
using nlohmann::json;
using ::testing::HasSubstr;

json inspected(std::vector<std::string> arguments, int exit_code = 0) {
  arguments.insert(arguments.begin(), {"data", "inspect"});
  arguments.push_back("--json");
  const Output output = run(arguments);
  EXPECT_EQ(output.exit_code, exit_code) << output.err;
  return json::parse(output.out);
}

TEST(Inspect, ASuggestedConfigTrains) {
  dt::TempDir dir;
  dt::write_impressions(dir.path() / "train", {.rows = 120});
  dt::write_impressions(dir.path() / "valid", {.rows = 40, .seed = 2});
  const Output suggested = run({"data", "inspect", dir.path().string(), "--config"});
  ASSERT_EQ(suggested.exit_code, 0) << suggested.err;
  write_text(dir.file("config.toml"), suggested.out);
  const Output trained = run(
      {"train", dir.file("config.toml"), "--set", "train.max_steps=3", "--set", "batch.examples=8",
       "--set", "model.width=16", "--set", "model.query_heads=2", "--set", "model.key_heads=2",
       "--set", "model.head_dim=8", "--set", "model.ffn=16", "--set", "model.layers=1"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("at step 3"));
}

TEST(Inspect, JsonHasTheKeysOfTheDocument) {
  dt::TempDir dir;
  dt::write_impressions(dir.path(), {.rows = 100, .files = 2});
  const json found = inspected({dir.path().string(), "--threads", "2"});
  EXPECT_EQ(found.at("files"), 2);
  EXPECT_EQ(found.at("rows"), 100);
  EXPECT_EQ(found.at("rows_read"), 100);
  EXPECT_EQ(found.at("row_groups").at("max_rows"), 16);
  EXPECT_EQ(found.at("refused").at("rows"), 0);
  EXPECT_EQ(found.at("actions").size(), 3U);
  EXPECT_EQ(found.at("actions").at(0).at("rate"), 1.0);
  EXPECT_EQ(found.at("request_time").at("first"), 1'700'000'000);
  EXPECT_GT(found.at("window_bytes"), 0);
  // Every other key of the document's list.
  for (const char* key : {"path", "config", "stopped", "file_bytes", "shuffle_window", "columns",
                          "history_length", "candidates", "undeclared_action_bits", "users", "cuts",
                          "splits", "memory", "threads", "seconds", "read_seconds", "bytes_read"}) {
    EXPECT_TRUE(found.contains(key)) << key;
  }
}

// A dataset's first trouble is not its last: what else there is, is said too.
TEST(Inspect, NamesWhatIsBrokenAndExitsWithOne) {
  dt::TempDir dir;
  const auto paths = dt::write_impressions(dir.path(), {.rows = 96, .files = 3});
  dt::corrupt_row_group(paths[0], 0);
  std::filesystem::resize_file(paths[1], 700);
  const json found = inspected({dir.path().string()}, 1);
  EXPECT_EQ(found.at("refused").at("files"), 1);
  EXPECT_EQ(found.at("refused").at("row_groups"), 1);
  EXPECT_EQ(found.at("refused").at("rows"), 16);
  EXPECT_EQ(found.at("rows_read"), 64);
  const Output text = run({"data", "inspect", dir.path().string()});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("would refuse the whole data set at the start: 1 file of 3"));
  EXPECT_THAT(text.out, HasSubstr("would refuse 16 of 64 rows read (1 whole row group)"));
  EXPECT_EQ(found.at("refused").at("whole_data_set"), true);
  const json& reason = found.at("refused").at("by_reason").at(0);
  EXPECT_EQ(reason.at("kind"), "cannot be read");
  EXPECT_EQ(reason.at("column"), "user_id");
  EXPECT_EQ(reason.at("rows"), 16);
  EXPECT_EQ(reason.at("first").at("file"), paths[0]);
  EXPECT_THAT(text.out, HasSubstr(paths[0] + ", row group 0: column user_id"));
  EXPECT_THAT(text.out, HasSubstr(paths[1] + " (700 bytes): "));
}

TEST(Inspect, LooksAtTheDataOfAConfigWithItsLimits) {
  const Workspace work({.rows = 60});
  const json found = inspected({work.config()});
  EXPECT_EQ(found.at("rows"), 60);
  const json small = inspected({work.config(), "--set", "batch.history_len=1"});
  EXPECT_GT(small.at("cuts").at("history_events"), found.at("cuts").at("history_events"));
}

TEST(Inspect, RefusesWhatItCannotLookAt) {
  dt::TempDir dir;
  EXPECT_EQ(run({"data", "inspect", dir.file("absent")}).exit_code, 2);
  EXPECT_EQ(run({"data", "inspect"}).exit_code, 2);
  write_text(dir.file("config.toml"), small_config());
  EXPECT_EQ(run({"data", "inspect", dir.file("config.toml"), "--split", "all"}).exit_code, 2);
  EXPECT_EQ(run({"data", "inspect", dir.file("config.toml"), "--config"}).exit_code, 2);
  dt::write_impressions(dir.path() / "rows", {.rows = 20});
  const std::string rows = dir.file("rows");
  EXPECT_EQ(run({"data", "inspect", rows, "--split", "train"}).exit_code, 2);
  EXPECT_EQ(run({"data", "inspect", rows, "--json", "--config"}).exit_code, 2);
  const Output negative = run({"data", "inspect", rows, "--limit-rows", "-1"});
  EXPECT_EQ(negative.exit_code, 2);
  EXPECT_LT(negative.err.size(), 200U) << negative.err;
}

TEST(Inspect, SaysThatSplitsAreReadTogether) {
  dt::TempDir dir;
  dt::write_impressions(dir.path() / "train", {.rows = 40});
  dt::write_impressions(dir.path() / "valid", {.rows = 20, .seed = 2});
  const json found = inspected({dir.path().string()});
  EXPECT_EQ(found.at("rows"), 60);
  EXPECT_EQ(found.at("splits"), json({dir.file("train"), dir.file("valid")}));
  EXPECT_THAT(run({"data", "inspect", dir.path().string()}).out, HasSubstr("read together"));
}

// Users and candidates alone.
void write_unlabelled(const std::string& path) {
  const auto users = dt::array_of<arrow::Int64Builder>(std::vector<std::int64_t>{1, 2, 3});
  const auto items =
      dt::lists_of<arrow::Int64Builder>({1, 2, 1}, std::vector<std::int64_t>{10, 20, 30, 40});
  const auto fields = arrow::schema(
      {arrow::field("user_id", users->type()), arrow::field("candidate_item_id", items->type())});
  dt::write_parquet(path, *arrow::Table::Make(fields, {users, items}), 2);
}

TEST(Inspect, WithoutLabelsNoActionsAreInvented) {
  dt::TempDir dir;
  write_unlabelled(dir.file("a.parquet"));
  EXPECT_EQ(inspected({dir.path().string()}).at("actions"), json::array());
  const Output text = run({"data", "inspect", dir.path().string()});
  EXPECT_THAT(text.out, HasSubstr("no column of actions: set data.actions_column"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("action_0")));
}

json loaded(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "loader"});
  arguments.insert(arguments.end(), {"--json", "--rounds", "1"});
  const Output output = run(arguments);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return json::parse(output.out);
}

TEST(BenchLoader, LoadsDataWithoutLabels) {
  dt::TempDir dir;
  write_unlabelled(dir.file("a.parquet"));
  const json found = loaded({dir.path().string()});
  EXPECT_EQ(found.at("labels"), false);
  EXPECT_EQ(found.at("pipeline").at("rows"), 3);
}

TEST(BenchLoader, UsesTheConfigsOwnValuesUnlessTold) {
  const Workspace work({.rows = 60});
  const json own = loaded({work.config(), "--set", "data.depth=3", "--set", "data.readers=2",
                           "--set", "data.shuffle_window=5", "--set", "batch.examples=7"});
  EXPECT_EQ(own.at("depth"), 3);
  EXPECT_EQ(own.at("readers"), 2);
  EXPECT_EQ(own.at("window"), 5);
  EXPECT_EQ(own.at("examples"), 7);
  const json told = loaded({work.config(), "--set", "data.depth=3", "--depth", "4", "--window", "0",
                            "--batch", "9", "--readers", "1"});
  EXPECT_EQ(told.at("depth"), 4);
  EXPECT_EQ(told.at("readers"), 1);
  EXPECT_EQ(told.at("window"), 0);
  EXPECT_EQ(told.at("examples"), 9);
}

TEST(BenchLoader, LeavesOutWhatTheConfigLets) {
  dt::TempDir dir;
  const auto paths = dt::write_impressions(dir.path(), {.rows = 96, .files = 3});
  dt::corrupt_row_group(paths[0], 0);
  EXPECT_EQ(run({"bench", "loader", dir.path().string()}).exit_code, 1);
  const json found = loaded({dir.path().string(), "--set", "data.skip_bad_blocks=1"});
  EXPECT_EQ(found.at("pipeline").at("rows"), 80);
  EXPECT_EQ(found.at("skipped").at("row_groups"), 1);
  EXPECT_EQ(found.at("skipped").at("rows_of_row_groups"), 16);
}

}  // namespace
}  // namespace paceline::e2e
