// `paceline checkpoint` on the real program: what it tells, and what it says to bad input.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "e2e/checkpoint_runs.hpp"

namespace paceline::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const checkpoint::Tensor& table_of(const checkpoint::Loaded& loaded) {
  for (const auto& t : loaded.tables) {
    if (t.name == "table.rows") return t;
  }
  PL_CHECK(false, "a table");
  return loaded.tables.front();
}

class CheckpointCommand : public CheckpointRuns {};

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

TEST_F(CheckpointCommand, DiffNamesTensorsAndByHowMuch) {
  const std::string parent = w->run_dir("parent"), child = w->run_dir("child");
  const auto same = json_of({"checkpoint", "diff", parent + "@8", step_dir(parent, 8)});
  EXPECT_EQ(same.at("equal"), true);
  EXPECT_GT(same.at("tensors"), 10);
  EXPECT_TRUE(same.at("differences").empty());

  // A difference together with its base is what was trained: the same steps saved in full.
  train("plain", {"train.init_from=" + step_dir(parent, 8), "train.max_steps=7"});
  const Output o = run({"checkpoint", "diff", child + "@7", w->run_dir("plain")});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("all equal"),
                           HasSubstr("config checkpoint.table_deltas: 5 in A, 0 in B")));

  // One value of one tensor, as the other library of the format would see it.
  const auto a = checkpoint::load(step_dir(parent, 8)), b = checkpoint::load(step_dir(parent, 12));
  ASSERT_TRUE(a.ok() && b.ok());
  const auto json = json_of({"checkpoint", "diff", parent + "@8", parent + "@12"}, 1);
  EXPECT_EQ(json.at("a").at("step"), 8);
  EXPECT_EQ(json.at("b").at("step"), 12);
  bool found = false;
  for (const auto& d : json.at("differences")) {
    if (d.at("name") != "table.rows") continue;
    found = true;
    const auto *x = reinterpret_cast<const float*>(table_of(*a).bytes.data()),
               *y = reinterpret_cast<const float*>(table_of(*b).bytes.data());
    const std::size_t n = table_of(*a).bytes.size_bytes() / sizeof(float);
    std::size_t differing = 0;
    double most = 0.0, most_relative = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      if (x[i] == y[i]) continue;
      ++differing;
      const double u = static_cast<double>(x[i]), v = static_cast<double>(y[i]);
      most = std::max(most, std::abs(u - v));
      most_relative = std::max(most_relative, std::abs(u - v) / std::max(std::abs(u), std::abs(v)));
    }
    EXPECT_EQ(d.at("elements"), n);
    EXPECT_EQ(d.at("differing"), differing);
    EXPECT_EQ(d.at("max_abs"), most);
    EXPECT_EQ(d.at("max_rel"), most_relative);
    EXPECT_EQ(d.at("at").size(), 2U);
  }
  EXPECT_TRUE(found) << json.dump(1);
}

TEST_F(CheckpointCommand, DiffTellsOtherShapesAndMissingTensors) {
  train("wider", {"model.ffn=48", "train.max_steps=1"});
  train("deeper", {"model.layers=3", "train.max_steps=1"});
  const std::string parent = w->run_dir("parent");
  const Output wider = run({"checkpoint", "diff", parent, w->run_dir("wider"), "--weights"});
  EXPECT_EQ(wider.exit_code, 1) << wider.err;
  EXPECT_THAT(wider.out,
              AllOf(HasSubstr("blocks.0.mlp.down.weight: F32 [16, 32] in A, F32 [16, 48] in B"),
                    HasSubstr("config model.ffn: 32 in A, 48 in B"), Not(HasSubstr("adam."))));
  bool only = false;
  const auto deeper = json_of({"checkpoint", "diff", w->run_dir("deeper"), parent}, 1);
  for (const auto& d : deeper.at("differences")) {
    if (d.at("name") != "adam.v.blocks.2.mlp.up.weight") continue;
    EXPECT_EQ(d.at("what"), "only_in_a");
    EXPECT_TRUE(d.at("b").is_null());
    only = true;
  }
  EXPECT_TRUE(only);
}

// An error is not "they differ".
TEST_F(CheckpointCommand, DiffReadsEveryByte) {
  const std::string copy = copy_of("parent");
  const std::string file = step_dir(copy, 12) + "/model.safetensors";
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(file, bytes);
  expect_refused({"checkpoint", "diff", copy, w->run_dir("parent")}, 2,
                 "model.safetensors has hash");
  expect_refused({"checkpoint", "diff", file, w->run_dir("parent") + "@13"}, 2, "it has: 4, 8, 12");
  write_text(w->file("cut.safetensors"), bytes.substr(0, 100));
  expect_refused({"checkpoint", "diff", w->file("cut.safetensors"), copy}, 2, "cut.safetensors");
  expect_refused({"checkpoint", "diff", w->file("none.safetensors"), copy}, 2, "none.safetensors");
  EXPECT_EQ(run({"checkpoint", "diff", copy}).exit_code, 2);
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
