// The laws of training, seen from outside: runs of the program compared with each other.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>

#include "core/clock.hpp"
#include "e2e/support.hpp"
#include "telemetry/progress.hpp"
#include "train/loaded_run.hpp"
#include "train/trainer.hpp"

namespace paceline::e2e {
namespace {

using data::testing::ImpressionOptions;

constexpr ImpressionOptions kSmall{.rows = 150, .files = 3, .row_group_rows = 16};
// Long enough to be killed in the middle.
constexpr ImpressionOptions kLong{.rows = 2400, .files = 4, .row_group_rows = 64};

void expect_same_run(const std::string& a, const std::string& b) {
  EXPECT_EQ(losses(a), losses(b));
  const auto x = final_state(a), y = final_state(b);
  ASSERT_FALSE(x.empty());
  ASSERT_EQ(x.at("name"), y.at("name"));
  for (const auto& [file, bytes] : x) {
    EXPECT_GT(bytes.size(), 0U) << file;
    EXPECT_TRUE(bytes == y.at(file)) << file << " differs";
  }
}

void train(const Workspace& w, const std::string& name, const std::vector<std::string>& sets) {
  const Output o = run(w.train(name, sets));
  ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
}

TEST(Law1, NoDepthReaderThreadOrOverlapChangesABit) {
  const Workspace w(kSmall);
  train(w, "base", {});
  EXPECT_EQ(losses(w.run_dir("base")).size(), 38U);  // 2 epochs of 18 full batches and one short
  const std::vector<std::vector<std::string>> variants{
      {"data.depth=1"},
      {"data.depth=5"},
      {"data.readers=2"},
      {"data.readers=4"},
      {"train.threads=1"},
      {"train.threads=3"},
      {"train.threads=8"},
      {"train.overlap=false"},
      {"data.depth=5", "data.readers=4", "train.threads=8"}};
  for (std::size_t v = 0; v < variants.size(); ++v) {
    SCOPED_TRACE(variants[v].front());
    const std::string name = "variant" + std::to_string(v);
    train(w, name, variants[v]);
    expect_same_run(w.run_dir("base"), w.run_dir(name));
  }
}

// Wide enough that every op splits its work into several chunks.
TEST(Law1, NoThreadCountChangesABitOfALargeStep) {
  const Workspace w(
      {.rows = 256, .files = 2, .row_group_rows = 64, .min_history = 40, .max_history = 60});
  const std::vector<std::string> wide{
      "model.width=128",    "model.head_dim=64",    "model.ffn=256",    "model.table_width=32",
      "batch.examples=128", "batch.history_len=60", "train.max_steps=3"};
  const auto with = [&](std::vector<std::string> sets, const std::string& more) {
    sets.push_back(more);
    return sets;
  };
  train(w, "one", with(wide, "train.threads=1"));
  for (const char* threads : {"train.threads=2", "train.threads=3", "train.threads=8"}) {
    SCOPED_TRACE(threads);
    train(w, threads, with(wide, threads));
    expect_same_run(w.run_dir("one"), w.run_dir(threads));
  }
}

TEST(Law1, AnotherSeedDiffers) {
  const Workspace w(kSmall);
  train(w, "base", {});
  train(w, "weights", {"train.seed=2"});
  train(w, "order", {"data.seed=2"});
  EXPECT_NE(losses(w.run_dir("base")), losses(w.run_dir("weights")));
  EXPECT_NE(losses(w.run_dir("base")), losses(w.run_dir("order")));
}

TEST(Law1, KillsAndResumesChangeNoBit) {
  const Workspace w(kLong);
  const std::vector<std::string> saving{"checkpoint.every_steps=7"};
  train(w, "whole", saving);
  const std::size_t all = losses(w.run_dir("whole")).size();
  int kills = 0;
  for (const std::size_t at : {std::size_t{3}, all / 4, all / 2, all - 20}) {
    Process process(w.train("killed", saving));
    const bool alive =
        wait_until(process, [&] { return lines(w.run_dir("killed") + "/metrics.jsonl") >= at; });
    process.signal(SIGKILL);
    const Output o = process.wait();
    kills += alive && o.exit_code == 128 + SIGKILL ? 1 : 0;
  }
  EXPECT_GE(kills, 3) << "the runs ended before they could be killed";
  train(w, "killed", saving);
  expect_same_run(w.run_dir("whole"), w.run_dir("killed"));
}

TEST(Law1, AResumeWithOtherDepthReadersAndThreadsChangesNoBit) {
  const Workspace w(kSmall);
  train(w, "whole", {});
  train(w, "parts", {"train.max_steps=11"});
  train(w, "parts", {"train.max_steps=24", "data.depth=4", "data.readers=3", "train.threads=1"});
  train(w, "parts", {"train.overlap=false", "train.threads=3"});
  expect_same_run(w.run_dir("whole"), w.run_dir("parts"));
}

// Trains in this process and counts the rows of every step.
std::map<std::int64_t, int> counted_rows(const Workspace& w, const std::string& name,
                                         std::vector<std::string> sets, std::int64_t* steps) {
  sets.push_back("run.dir=" + w.run_dir(name));
  auto config = train::read_config(w.config(), sets);
  PL_CHECK(config.ok(), config.error().text());
  std::map<std::int64_t, int> rows;
  train::TrainOptions options;
  options.on_batch = [&](std::span<const std::int64_t> batch) {
    for (const std::int64_t row : batch) ++rows[row];
  };
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  {
    telemetry::Progress progress(nowhere, false);
    auto trainer = train::Trainer::create(std::move(*config), options, progress);
    PL_CHECK(trainer.ok(), trainer.error().text());
    auto summary = (*trainer)->run();
    PL_CHECK(summary.ok(), summary.error().text());
    *steps = summary->step;
  }
  std::fclose(nowhere);
  return rows;
}

TEST(Law2, EveryExampleOncePerEpochInBatchesOfAnyNumber) {
  // 0, 1, 2, depth and depth + 1 batches, whole and short last ones.
  for (const std::int64_t count : {0, 1, 7, 8, 9, 16, 24, 31, 150}) {
    SCOPED_TRACE(count);
    const Workspace w({.rows = count, .files = 2, .row_group_rows = 5});
    std::int64_t steps = 0;
    const auto rows = counted_rows(w, "run", {"train.epochs=2"}, &steps);
    EXPECT_EQ(steps, 2 * ((count + 7) / 8));
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(count));
    for (const auto& [row, times] : rows) EXPECT_EQ(times, 2) << "row " << row;
  }
}

TEST(Law2, EveryExampleOnceOverAResume) {
  const Workspace w(kSmall);
  std::int64_t steps = 0;
  auto rows = counted_rows(w, "run", {"train.max_steps=13"}, &steps);
  EXPECT_EQ(steps, 13);
  // Another batch size from here on: still every remaining row once.
  for (const auto& [row, times] : counted_rows(w, "run", {"batch.examples=5"}, &steps))
    rows[row] += times;
  EXPECT_EQ(rows.size(), 150U);
  for (const auto& [row, times] : rows) EXPECT_EQ(times, 2) << "row " << row;
}

TEST(Law3, BatchesBeforeABrokenBlockAreTrainedAndSaved) {
  const Workspace w({.rows = 48, .files = 1, .row_group_rows = 16});
  const std::string part = w.file("train/part-0000.parquet");
  data::testing::corrupt_row_group(part, 1);
  for (const char* ahead : {"data.depth=1", "data.depth=5"}) {
    SCOPED_TRACE(ahead);
    const std::string name = std::string("run-") + ahead;
    const Output o = run(w.train(name, {"data.shuffle_window=0", ahead}));
    EXPECT_EQ(o.exit_code, 1);
    EXPECT_NE(o.err.find("part-0000.parquet"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("row group 1"), std::string::npos) << o.err;
    EXPECT_EQ(losses(w.run_dir(name)).size(), 2U);
    // Raised and saved within a second of its turn.
    const auto last_step = std::filesystem::last_write_time(w.run_dir(name) + "/metrics.jsonl");
    EXPECT_LT(std::filesystem::file_time_type::clock::now() - last_step, std::chrono::seconds(1));
    EXPECT_EQ(checkpoints(w.run_dir(name)).back(), "step_000000000002");
  }
}

TEST(Law4, EndOfDataIsDoneAndDoneAgain) {
  const Workspace w(kSmall);
  train(w, "run", {});
  const auto before = final_state(w.run_dir("run"));
  const Output again = run(w.train("run"));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.out.find("nothing left to train"), std::string::npos) << again.out;
  EXPECT_EQ(before, final_state(w.run_dir("run")));
}

TEST(Law4, SignalsFinishTheStepSaveAndExit130) {
  const Workspace w(kLong);
  train(w, "whole", {});
  for (const int number : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(number);
    const std::string name = "stopped" + std::to_string(number);
    Process process(w.train(name));
    ASSERT_TRUE(
        wait_until(process, [&] { return lines(w.run_dir(name) + "/metrics.jsonl") >= 5; }));
    const auto asked = Clock::now();
    process.signal(number);
    const Output o = process.wait();
    EXPECT_LT(seconds_since(asked), 3.0)
        << "a stop is noticed within a second, then the state is saved";
    EXPECT_EQ(o.exit_code, 130) << o.out << o.err;
    // The state is that of the last step that was logged.
    char expected[32];
    std::snprintf(expected, sizeof expected, "step_%012zu", losses(w.run_dir(name)).size());
    EXPECT_EQ(checkpoints(w.run_dir(name)).back(), expected);
    train(w, name, {});
    expect_same_run(w.run_dir("whole"), w.run_dir(name));
  }
}

TEST(Law7, EvaluatingAndSavingAtEveryStepChangesNoBit) {
  const Workspace w(kSmall);
  train(w, "plain", {});
  train(w, "watched", {"eval.every_steps=1", "checkpoint.every_steps=1", "eval.bootstrap=0"});
  expect_same_run(w.run_dir("plain"), w.run_dir("watched"));
  // Two actions are trained.
  EXPECT_EQ(lines(w.run_dir("watched") + "/eval.jsonl"), 2 * losses(w.run_dir("watched")).size());
}

TEST(Checkpoints, AreWrittenByDefaultNotOnlyAtTheEnd) {
  const Workspace w(kSmall);
  train(w, "run", {"checkpoint.every_seconds=0.001", "checkpoint.keep_last=100"});
  EXPECT_GT(checkpoints(w.run_dir("run")).size(), 2U);
  const std::string config =
      (train(w, "plain", {"train.max_steps=1"}), read_text(w.run_dir("plain") + "/config.toml"));
  EXPECT_NE(config.find("every_seconds = 600"), std::string::npos) << config;
}

TEST(Checkpoints, AllBrokenIsRefusedAndForgetsNothing) {
  const Workspace w(kSmall);
  train(w, "run", {"train.max_steps=5"});
  const std::string metrics = read_text(w.run_dir("run") + "/metrics.jsonl");
  write_text(w.run_dir("run") + "/checkpoints/step_000000000005/model.safetensors", "gone");
  for (int again = 0; again < 2; ++again) {
    const Output o = run(w.train("run"));
    EXPECT_EQ(o.exit_code, 1) << o.out;
    EXPECT_NE(o.err.find("no checkpoint is whole"), std::string::npos) << o.err;
    EXPECT_EQ(metrics, read_text(w.run_dir("run") + "/metrics.jsonl"));
  }
}

TEST(Checkpoints, AFlippedBitIsSkippedForTheOneBefore) {
  const Workspace w(kSmall);
  train(w, "whole", {"checkpoint.every_steps=10"});
  train(w, "flipped", {"checkpoint.every_steps=10", "train.max_steps=30"});
  const std::string newest = w.run_dir("flipped") + "/checkpoints/step_000000000030";
  std::string bytes = read_text(newest + "/optimizer.safetensors");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(newest + "/optimizer.safetensors", bytes);
  EXPECT_EQ(run({"checkpoint", "verify", w.run_dir("flipped")}).exit_code, 1);
  const Output o = run(w.train("flipped", {"checkpoint.every_steps=10"}));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_NE(o.out.find("step 20"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("corrupt"), std::string::npos) << o.err;
  expect_same_run(w.run_dir("whole"), w.run_dir("flipped"));
  EXPECT_EQ(run({"checkpoint", "list", w.run_dir("whole")}).exit_code, 0);
  EXPECT_EQ(run({"checkpoint", "verify", w.run_dir("whole")}).exit_code, 0);
}

}  // namespace
}  // namespace paceline::e2e
