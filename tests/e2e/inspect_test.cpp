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
                          "threads", "seconds", "read_seconds", "bytes_read"}) {
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
  EXPECT_THAT(text.out, HasSubstr("would refuse 16 of 64 rows read, 1 whole row groups, 1 whole"));
  EXPECT_THAT(text.out, HasSubstr(paths[0] + ", row group 0: column user_id"));
  EXPECT_THAT(text.out, HasSubstr(paths[1] + ": "));
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
}

}  // namespace
}  // namespace paceline::e2e
