// Saving, killing and going on, seen from outside.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "e2e/support.hpp"

namespace paceline::e2e {
namespace {

using data::testing::ImpressionOptions;

constexpr ImpressionOptions kSmall{.rows = 150, .files = 3, .row_group_rows = 16};

checkpoint::Loaded newest(const std::string& run_dir) {
  auto loaded = checkpoint::load_newest(run_dir + "/checkpoints");
  PL_CHECK(loaded.ok(), loaded.error().text());
  return std::move(*loaded);
}

// Losses and, whatever the files hold them in, the last weights, moments and tables.
void expect_same_run(const std::string& a, const std::string& b) {
  EXPECT_EQ(losses(a), losses(b));
  const auto x = newest(a), y = newest(b);
  EXPECT_EQ(x.step, y.step);
  EXPECT_EQ(x.state.at("position"), y.state.at("position"));
  EXPECT_EQ(x.state.at("examples"), y.state.at("examples"));
  for (const auto part :
       {&checkpoint::Loaded::model, &checkpoint::Loaded::optimizer, &checkpoint::Loaded::tables}) {
    ASSERT_EQ((x.*part).size(), (y.*part).size());
    for (std::size_t i = 0; i < (x.*part).size(); ++i) {
      const auto &s = (x.*part)[i], &t = (y.*part)[i];
      ASSERT_EQ(s.name, t.name);
      ASSERT_EQ(s.bytes.size_bytes(), t.bytes.size_bytes());
      EXPECT_EQ(std::memcmp(s.bytes.data(), t.bytes.data(), s.bytes.size_bytes()), 0) << s.name;
    }
  }
}

void train(const Workspace& w, const std::string& name, const std::vector<std::string>& sets) {
  const Output o = run(w.train(name, sets));
  ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
}

std::vector<nlohmann::json> saves(const std::string& run_dir) {
  std::vector<nlohmann::json> all;
  std::ifstream in(run_dir + "/saves.jsonl");
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST(Saves, NoWayOfSavingChangesABit) {
  const Workspace w(kSmall);
  train(w, "plain", {});
  const std::vector<std::vector<std::string>> ways{
      {"checkpoint.background=true"},
      {"checkpoint.background=false"},
      {"checkpoint.when_busy=skip"},
      {"checkpoint.table_deltas=4"},
      {"checkpoint.table_deltas=3", "checkpoint.background=false"},
      {"checkpoint.shard_size=4096"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(ways[i].front());
    auto sets = ways[i];
    sets.insert(sets.end(), {"checkpoint.every_steps=1", "checkpoint.keep_last=50"});
    const std::string name = "way" + std::to_string(i);
    train(w, name, sets);
    expect_same_run(w.run_dir("plain"), w.run_dir(name));
    EXPECT_EQ(run({"checkpoint", "verify", w.run_dir(name)}).exit_code, 0);
    std::size_t made = 0;
    for (const auto& save : saves(w.run_dir(name))) {
      made += !save.at("skipped").get<bool>() && save.at("error").is_null() ? 1 : 0;
    }
    EXPECT_EQ(made, checkpoints(w.run_dir(name)).size());
  }
}

// PACELINE_KILLS=200 is the long form.
TEST(Saves, KillsAtAnyMomentLoseAndRepeatNothing) {
  const char* wanted = std::getenv("PACELINE_KILLS");
  const int kills = wanted == nullptr ? 12 : std::atoi(wanted);
  ASSERT_GT(kills, 0) << "PACELINE_KILLS";
  const Workspace w({.rows = 1200 + 24 * kills, .files = 4, .row_group_rows = 64});
  const std::vector<std::string> saving{"checkpoint.every_steps=3", "checkpoint.table_deltas=5"};
  train(w, "whole", saving);
  const std::string killed = w.run_dir("killed");
  std::mt19937 random(20);
  int done = 0;
  for (int i = 0; i < 2 * kills && done < kills; ++i) {
    auto sets = saving;
    if (i % 4 == 1) sets.emplace_back("checkpoint.background=false");
    if (i % 4 == 2) sets.emplace_back("checkpoint.table_deltas=0");
    if (i % 4 == 3) sets.emplace_back("data.depth=4");
    const std::size_t from = i == 0 ? 0 : lines(killed + "/metrics.jsonl");
    const std::size_t at = from + random() % 7;
    const auto later = std::chrono::microseconds(random() % (i % 5 == 0 ? 60'000 : 4'000));
    Process process(w.train("killed", sets));
    wait_until(process, [&] {
      return std::filesystem::exists(killed + "/metrics.jsonl") &&
             lines(killed + "/metrics.jsonl") >= at;
    });
    std::this_thread::sleep_for(later);
    process.signal(SIGKILL);
    const Output o = process.wait();
    if (o.exit_code == 128 + SIGKILL) ++done;
    ASSERT_TRUE(o.exit_code == 128 + SIGKILL || o.exit_code == 0) << o.out << o.err;
  }
  EXPECT_EQ(done, kills) << "the run ended before it could be killed so often";
  train(w, "killed", saving);
  expect_same_run(w.run_dir("whole"), killed);
  for (const auto& entry : std::filesystem::directory_iterator(killed + "/checkpoints")) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with(".step")) << name;
    EXPECT_EQ(name.find("corrupt"), std::string::npos) << name;
  }
  std::printf("%d kills, %zu steps, all bits equal\n", done, losses(killed).size());
}

TEST(Saves, ASignalSavesAndTrainingGoesOn) {
  const Workspace w({.rows = 2400, .files = 4, .row_group_rows = 64});
  train(w, "whole", {});
  const std::string asked = w.run_dir("asked");
  Process process(w.train("asked"));
  ASSERT_TRUE(wait_until(process, [&] { return lines(asked + "/metrics.jsonl") >= 5; }));
  process.signal(SIGUSR1);
  EXPECT_TRUE(wait_until(process, [&] { return !checkpoints(asked).empty(); }));
  const Output o = process.wait();
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_NE(o.err.find("saved as asked: step "), std::string::npos) << o.err;
  EXPECT_EQ(checkpoints(asked).size(), 2U);
  expect_same_run(w.run_dir("whole"), asked);
}

TEST(Saves, ARunThatCannotSaveEndsWithTheReason) {
  const Workspace w(kSmall);
  // A file where a directory should be.
  const std::string blocked = w.file("blocked");
  write_text(blocked, "a file");
  const Output o = run(w.train("run", {"checkpoint.dir=" + blocked + "/checkpoints"}));
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_NE(o.err.find(blocked), std::string::npos) << o.err;
}

TEST(Saves, AReplacedDirectoryFailsSavesUntilTheLimit) {
  const Workspace w({.rows = 2400, .files = 4, .row_group_rows = 64});
  const std::string dir = w.run_dir("run") + "/checkpoints";
  Process process(w.train("run", {"checkpoint.every_steps=5", "checkpoint.fail_after=2"}));
  ASSERT_TRUE(wait_until(process, [&] { return !checkpoints(w.run_dir("run")).empty(); }));
  std::filesystem::rename(dir, dir + "-moved");
  write_text(dir, "a file");
  const Output o = process.wait();
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_NE(o.err.find("checkpoint.fail_after"), std::string::npos) << o.err;
  int failed = 0;
  for (const auto& save : saves(w.run_dir("run"))) failed += save.at("error").is_null() ? 0 : 1;
  EXPECT_GE(failed, 2);
  // What was saved before is whole, and the run goes on from it.
  std::filesystem::remove(dir);
  std::filesystem::rename(dir + "-moved", dir);
  train(w, "run", {"checkpoint.every_steps=5"});
  train(w, "whole", {});
  expect_same_run(w.run_dir("whole"), w.run_dir("run"));
}

TEST(Saves, ARunBeginsFromTheWeightsOfAnother) {
  const Workspace w(kSmall);
  train(w, "first", {"train.max_steps=20"});
  const Output o = run(w.train("second", {"train.init_from=" + w.run_dir("first"), "optimizer.lr=0",
                                          "optimizer.table_lr=0", "train.max_steps=1"}));
  ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto from = newest(w.run_dir("first")), to = newest(w.run_dir("second"));
  for (std::size_t i = 0; i < from.model.size(); ++i) {
    EXPECT_EQ(std::memcmp(from.model[i].bytes.data(), to.model[i].bytes.data(),
                          from.model[i].bytes.size_bytes()),
              0)
        << from.model[i].name;
  }
  EXPECT_EQ(to.state.at("step"), 1);
  ASSERT_FALSE(to.state.at("lineage").empty());
  EXPECT_EQ(to.state.at("lineage")[0].at("why"), "init_from");

  const Output other = run(w.train(
      "third", {"train.init_from=" + w.run_dir("first"), "model.ffn=48", "train.max_steps=1"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("mlp.down.weight"), std::string::npos) << other.err;
  const Output nothing = run(w.train("fourth", {"train.init_from=" + w.file("nowhere")}));
  EXPECT_NE(nothing.exit_code, 0);
  EXPECT_NE(nothing.err.find("nowhere"), std::string::npos) << nothing.err;
}

TEST(Saves, AResumeSaysWhetherItIsBitIdentical) {
  const Workspace w(kSmall);
  train(w, "run", {"train.max_steps=5"});
  const Output same = run(w.train("run", {"train.max_steps=8", "data.depth=4"}));
  EXPECT_NE(same.out.find("bit-identical"), std::string::npos) << same.out;
  const Output other = run(w.train("run", {"batch.examples=4"}));
  EXPECT_NE(other.out.find("results may differ"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("batch.examples"), std::string::npos) << other.out;
}

}  // namespace
}  // namespace paceline::e2e
