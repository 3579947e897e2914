// Runs with checkpoints that tests of `paceline checkpoint` look at, and the program with its
// answers.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/support.hpp"

namespace paceline::e2e {

namespace fs = std::filesystem;

inline constexpr data::testing::ImpressionOptions kSmall{
    .rows = 150, .files = 3, .row_group_rows = 16};

inline std::string step_dir(const std::string& run_dir, int step) {
  return fmt::format("{}/checkpoints/step_{:012}", run_dir, step);
}

// With --json behind the arguments; the exit code has to be `code`.
inline nlohmann::json json_of(std::vector<std::string> arguments, int code = 0) {
  arguments.emplace_back("--json");
  const Output o = run(arguments);
  EXPECT_EQ(o.exit_code, code) << o.out << o.err;
  auto json = nlohmann::json::parse(o.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << o.out;
  return json;
}

inline void expect_refused(const std::vector<std::string>& arguments, int code,
                           const std::string& says) {
  const Output o = run(arguments);
  EXPECT_EQ(o.exit_code, code) << o.out << o.err;
  EXPECT_THAT(o.err, ::testing::HasSubstr(says));
}

// `parent` has steps 4, 8, 12 (full); `child` grew from its step 8 and has differences.
class CheckpointRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    w = std::make_unique<Workspace>(kSmall);
    train("parent", {"train.max_steps=12", "checkpoint.every_steps=4"});
    train("child",
          {"train.init_from=" + step_dir(w->run_dir("parent"), 8), "train.max_steps=5",
           "checkpoint.every_steps=2", "checkpoint.table_deltas=5", "checkpoint.shard_size=4096",
           "checkpoint.keep_last=10", "checkpoint.background=false"});
    train("child", {"train.max_steps=7", "checkpoint.table_deltas=5", "checkpoint.keep_last=10",
                    "checkpoint.background=false"});
  }
  static void TearDownTestSuite() { w.reset(); }
  static void train(const std::string& name, const std::vector<std::string>& sets) {
    const Output o = run(w->train(name, sets));
    ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
  }
  // A copy that a test may spoil.
  static std::string copy_of(const std::string& name) {
    static int n = 0;
    const std::string copy = w->run_dir(name + "-copy" + std::to_string(++n));
    fs::copy(w->run_dir(name), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return copy;
  }

  static inline std::unique_ptr<Workspace> w;
};

}  // namespace paceline::e2e
