// `paceline checkpoint` on the real program: what it tells, and what it says to bad input.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr data::testing::ImpressionOptions kSmall{.rows = 150, .files = 3, .row_group_rows = 16};

std::string step_dir(const std::string& run_dir, int step) {
  return fmt::format("{}/checkpoints/step_{:012}", run_dir, step);
}

// With --json behind the arguments; the exit code has to be `code`.
nlohmann::json json_of(std::vector<std::string> arguments, int code = 0) {
  arguments.emplace_back("--json");
  const Output o = run(arguments);
  EXPECT_EQ(o.exit_code, code) << o.out << o.err;
  auto json = nlohmann::json::parse(o.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << o.out;
  return json;
}

void expect_refused(const std::vector<std::string>& arguments, int code, const std::string& says) {
  const Output o = run(arguments);
  EXPECT_EQ(o.exit_code, code) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr(says));
}

// `parent` has steps 4, 8, 12 (full); `child` grew from its step 8 and has differences.
class CheckpointCommand : public testing::Test {
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

  static std::unique_ptr<Workspace> w;
};
std::unique_ptr<Workspace> CheckpointCommand::w;

TEST_F(CheckpointCommand, ListTellsStepsSizesAndLineage) {
  const auto parent = json_of({"checkpoint", "list", w->run_dir("parent")});
  ASSERT_EQ(parent.at("checkpoints").size(), 3U);
  EXPECT_EQ(parent.at("set_aside").size(), 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& c = parent.at("checkpoints")[i];
    const int step = 4 * (static_cast<int>(i) + 1);
    EXPECT_EQ(c.at("step"), step);
    EXPECT_EQ(c.at("path"), step_dir(w->run_dir("parent"), step));
    EXPECT_EQ(c.at("complete"), true);
    EXPECT_EQ(c.at("latest"), step == 12);
    EXPECT_TRUE(c.at("base_step").is_null());
    std::uint64_t bytes = 0;
    for (const auto& f : fs::directory_iterator(step_dir(w->run_dir("parent"), step))) {
      bytes += f.file_size();
    }
    EXPECT_EQ(c.at("bytes"), bytes);
    EXPECT_GE(c.at("age_s").get<double>(), 0.0);
    EXPECT_LT(c.at("age_s").get<double>(), 3600.0);
    EXPECT_TRUE(c.at("lineage").empty());
  }

  const auto child = json_of({"checkpoint", "list", w->run_dir("child")});
  const auto& newest = child.at("checkpoints").back();
  EXPECT_EQ(newest.at("step"), 7);
  EXPECT_EQ(newest.at("starts"), 2);
  ASSERT_EQ(newest.at("lineage").size(), 2U);
  const auto& from = newest.at("lineage")[0];
  EXPECT_EQ(from.at("why"), "init_from");
  EXPECT_EQ(from.at("step"), 8);
  EXPECT_EQ(from.at("run"), parent.at("checkpoints")[1].at("run_id"));
  EXPECT_EQ(from.at("path"), step_dir(w->run_dir("parent"), 8));
  EXPECT_EQ(newest.at("lineage")[1].at("why"), "resume");
  EXPECT_EQ(newest.at("lineage")[1].at("step"), 5);

  const Output o = run({"checkpoint", "list", w->run_dir("child")});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("began with the weights of " + step_dir(w->run_dir("parent"), 8) +
                              " (step 8 of run " + from.at("run").get<std::string>()),
                    HasSubstr("went on from step 5"), HasSubstr("tables differ from step"),
                    HasSubstr("started 2 times")));
}

TEST_F(CheckpointCommand, ListSaysWhatIsBrokenAndWhatWasSetAside) {
  const std::string copy = copy_of("parent");
  fs::resize_file(step_dir(copy, 12) + "/MANIFEST.json", 40);
  fs::rename(step_dir(copy, 4), step_dir(copy, 4) + ".corrupt-1");
  const auto json = json_of({"checkpoint", "list", copy});
  ASSERT_EQ(json.at("checkpoints").size(), 2U);
  const auto& broken = json.at("checkpoints")[1];
  EXPECT_EQ(broken.at("complete"), false);
  EXPECT_THAT(broken.at("why").get<std::string>(), HasSubstr("MANIFEST.json"));
  EXPECT_FALSE(broken.contains("run_id"));
  ASSERT_EQ(json.at("set_aside").size(), 1U);
  EXPECT_EQ(json.at("set_aside")[0], step_dir(copy, 4) + ".corrupt-1");
  const Output o = run({"checkpoint", "list", copy});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("BROKEN: "), HasSubstr("set aside: step_000000000004")));

  const auto verified = json_of({"checkpoint", "verify", copy}, 1);
  EXPECT_EQ(verified.at("verified"), true);
  EXPECT_EQ(verified.at("checkpoints")[0].at("complete"), true);
  EXPECT_EQ(run({"checkpoint", "verify", copy + "@8"}).exit_code, 0);
  EXPECT_EQ(run({"checkpoint", "verify", copy + "@12"}).exit_code, 1);
}

TEST_F(CheckpointCommand, ShowTellsWhatIsInside) {
  const auto json = json_of({"checkpoint", "show", w->run_dir("parent") + "@8"});
  EXPECT_EQ(json.at("step"), 8);
  EXPECT_EQ(json.at("complete"), true);
  EXPECT_EQ(json.at("position").at("batches"), 8);
  EXPECT_EQ(json.at("position").at("rows"), json.at("examples"));
  EXPECT_EQ(json.at("config").at("train.max_steps"), "12");
  EXPECT_EQ(json.at("format_version"), 2);
  EXPECT_EQ(json.at("state_version"), 2);
  EXPECT_EQ(json.at("build").at("version"), run({"--version"}).out.substr(0, 5));
  EXPECT_EQ(json.at("files").size(), 5U);
  for (const auto& f : json.at("files")) {
    EXPECT_EQ(f.at("bytes"), fs::file_size(step_dir(w->run_dir("parent"), 8) + "/" +
                                           f.at("name").get<std::string>()));
  }
  EXPECT_EQ(json.at("tensors").at("optimizer").size(), 2 * json.at("tensors").at("model").size());

  // The directory itself and `latest` name it too; the newest is the default.
  EXPECT_EQ(json_of({"checkpoint", "show", step_dir(w->run_dir("parent"), 4)}).at("step"), 4);
  EXPECT_EQ(
      json_of({"checkpoint", "show", w->run_dir("parent") + "/checkpoints/latest"}).at("step"), 12);
  const auto newest = json_of({"checkpoint", "show", w->run_dir("parent")});
  EXPECT_EQ(newest.at("step"), 12);
  EXPECT_EQ(newest.at("config_fingerprint"), json.at("config_fingerprint"));

  const auto child = json_of({"checkpoint", "show", w->run_dir("child") + "@4"});
  EXPECT_EQ(child.at("config_fingerprint"), json.at("config_fingerprint"));
  EXPECT_EQ(child.at("base_step"), 2);
  EXPECT_LT(child.at("held_rows"), child.at("table_rows"));

  const Output o = run({"checkpoint", "show", w->run_dir("child") + "@4", "--tensors"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("final_norm.scale F32 [16]"), HasSubstr("MANIFEST.json"),
                           HasSubstr("began with the weights of"),
                           HasSubstr("the others are in step 2"), HasSubstr("position     epoch")));
}

TEST_F(CheckpointCommand, BadNamesAreRefused) {
  const std::string parent = w->run_dir("parent");
  const std::string truncated = copy_of("parent");
  fs::resize_file(step_dir(truncated, 12) + "/MANIFEST.json", 40);
  for (const char* command : {"show"}) {
    SCOPED_TRACE(command);
    expect_refused({"checkpoint", command, w->file("nowhere")}, 2, "nowhere");
    expect_refused({"checkpoint", command, w->file("train")}, 2, "not a run");
    expect_refused({"checkpoint", command, parent + "@7"}, 2, "it has: 4, 8, 12");
    expect_refused({"checkpoint", command, parent + "@-1"}, 2, "RUN@STEP");
    expect_refused({"checkpoint", command, parent + "@x"}, 2, "RUN@STEP");
    expect_refused({"checkpoint", command, step_dir(parent, 7)}, 2, "there is no checkpoint");
    expect_refused({"checkpoint", command, truncated + "@12"}, 1, "MANIFEST.json");
    EXPECT_EQ(run({"checkpoint", command}).exit_code, 2);
  }
  expect_refused({"checkpoint", "list", w->file("nowhere")}, 2, "nowhere");
  expect_refused({"checkpoint", "verify", parent + "@7"}, 2, "it has: 4, 8, 12");

  // A newer one that is broken is not what the run's name means.
  EXPECT_EQ(json_of({"checkpoint", "show", truncated}).at("step"), 8);
  for (const int step : {4, 8}) fs::remove(step_dir(truncated, step) + "/state.json");
  expect_refused({"checkpoint", "show", truncated}, 2, "no complete checkpoint");
  // A base that is gone: what is inside is told, and that it cannot be used.
  const std::string child = copy_of("child");
  fs::remove_all(step_dir(child, 2));
  const auto without = json_of({"checkpoint", "show", child + "@4"}, 1);
  EXPECT_EQ(without.at("complete"), false);
  EXPECT_THAT(without.at("why").get<std::string>(), HasSubstr("its base, step_000000000002"));
}

TEST_F(CheckpointCommand, WhatCannotBeReadIsNotCalledAbsent) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is closed to this user";
  const std::string copy = copy_of("parent");
  fs::permissions(copy + "/checkpoints", fs::perms::none);
  expect_refused({"checkpoint", "list", copy}, 1, "checkpoints: Permission denied");
  expect_refused({"checkpoint", "show", copy}, 1, "checkpoints: Permission denied");
  fs::permissions(copy + "/checkpoints", fs::perms::owner_all);
}

}  // namespace
}  // namespace paceline::e2e
