#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "core/clock.hpp"
#include "data/testing/impressions.hpp"
#include "device/gpu.hpp"
#include "telemetry/progress.hpp"

namespace paceline::train {
namespace {

namespace dt = data::testing;

constexpr const char* kSizes = R"(
[batch]
examples = 4
history_len = 8
candidates = 4
[model]
width = 8
layers = 1
query_heads = 1
key_heads = 1
head_dim = 8
ffn = 8
table_width = 4
)";

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    dt::write_impressions(dir_.path() / "train", {.rows = 64, .files = 2, .row_group_rows = 8});
    nowhere_ = std::fopen("/dev/null", "w");
  }
  void TearDown() override { std::fclose(nowhere_); }

  TrainConfig config(const std::vector<std::string>& sets) {
    auto read = Config::parse(kSizes + dt::impression_features(), "test.toml", dir_.path());
    PL_CHECK(read.ok(), read.error().text());
    for (const std::string set :
         {"run.dir=run", "data.train=train", "data.valid=train", "train.threads=2"}) {
      PL_CHECK(read->override_with(set).ok(), set);
    }
    for (const auto& set : sets) PL_CHECK(read->override_with(set).ok(), set);
    auto config = TrainConfig::from_config(*read);
    PL_CHECK(config.ok(), config.error().text());
    return std::move(*config);
  }

  dt::TempDir dir_;
  std::FILE* nowhere_ = nullptr;
};

TEST_F(TrainerTest, StopsAfterSoManyStepsThatAreNotFinite) {
  telemetry::Progress progress(nowhere_, false);
  // The first update throws the weights so far that every later loss overflows.
  auto trainer = Trainer::create(config({"optimizer.lr=1e30", "optimizer.table_lr=1e30",
                                         "train.max_bad_steps=3", "train.epochs=3"}),
                                 {}, progress);
  ASSERT_TRUE(trainer.ok()) << trainer.error().text();
  auto summary = (*trainer)->run();
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.error().message().find("train.max_bad_steps = 3"), std::string::npos);
  // The state is saved, with the bad steps counted and none of them applied.
  auto saved = checkpoint::load_newest(dir_.path() / "run/checkpoints");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->state["bad_in_a_row"], 3);
  EXPECT_GE(saved->state["skipped_steps"].get<int>(), 3);
  EXPECT_EQ(saved->state["adam_steps"].get<int>(),
            saved->state["step"].get<int>() - saved->state["skipped_steps"].get<int>());
}

TEST_F(TrainerTest, AGpuThatIsAskedForAndNotThereIsRefusedBeforeAnyWork) {
  if (device::find_gpu()) GTEST_SKIP() << "there is a GPU";
  telemetry::Progress progress(nowhere_, false);
  const auto refusal = [&](const std::vector<std::string>& sets) {
    const auto trainer = Trainer::create(config(sets), {}, progress);
    EXPECT_EQ(trainer.error().code(), Code::kInvalidArgument);
    return trainer.error().text();
  };
  const std::string cuda = refusal({"train.device=cuda"});
  EXPECT_NE(cuda.find("train.device = \"cuda\""), std::string::npos) << cuda;
  EXPECT_NE(cuda.find("allowed here: \"cpu\" or \"auto\""), std::string::npos) << cuda;
  const std::string bf16 = refusal({"train.precision=bf16"});
  EXPECT_NE(bf16.find("train.precision = \"bf16\""), std::string::npos) << bf16;
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "run"));
}

TEST_F(TrainerTest, AStopFromAnotherThreadEndsTrainingAndEvaluation) {
  for (const char* every : {"eval.every_steps=0", "eval.every_steps=1"}) {
    SCOPED_TRACE(every);
    telemetry::Progress progress(nowhere_, false);
    auto trainer = Trainer::create(
        config({"train.epochs=100000", every, std::string("run.dir=run-") + every}), {}, progress);
    ASSERT_TRUE(trainer.ok()) << trainer.error().text();
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      (*trainer)->request_stop();
    });
    auto summary = (*trainer)->run();
    stopper.join();
    ASSERT_TRUE(summary.ok()) << summary.error().text();
    EXPECT_EQ(summary->end, TrainEnd::kStopped);
    EXPECT_GT(summary->step, 0);
    auto saved =
        checkpoint::load_newest(dir_.path() / (std::string("run-") + every) / "checkpoints");
    ASSERT_TRUE(saved.ok());
    EXPECT_EQ(saved->step, summary->step);
  }
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepIsKept) {
  telemetry::Progress progress(nowhere_, false);
  auto trainer = Trainer::create(config({}), {}, progress);
  ASSERT_TRUE(trainer.ok());
  (*trainer)->request_stop();
  auto summary = (*trainer)->run();
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->end, TrainEnd::kStopped);
  EXPECT_EQ(summary->step, 0);
}

TEST_F(TrainerTest, AnErrorOfTheEvaluationKeepsWhatWasTrained) {
  dt::write_impressions(dir_.path() / "broken", {.rows = 16, .files = 1, .row_group_rows = 8});
  dt::corrupt_row_group(dir_.file("broken/part-0000.parquet"), 1);
  telemetry::Progress progress(nowhere_, false);
  auto trainer = Trainer::create(config({"data.valid=broken", "eval.every_steps=3"}), {}, progress);
  ASSERT_TRUE(trainer.ok());
  auto summary = (*trainer)->run();
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.error().text().find("evaluating valid at step 3"), std::string::npos);
  EXPECT_NE(summary.error().text().find("row group 1"), std::string::npos);
  auto saved = checkpoint::load_newest(dir_.path() / "run/checkpoints");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->step, 3);
}

TEST_F(TrainerTest, CountsWhatWasCut) {
  telemetry::Progress progress(nowhere_, false);
  auto trainer =
      Trainer::create(config({"batch.history_len=2", "batch.candidates=1"}), {}, progress);
  ASSERT_TRUE(trainer.ok());
  auto summary = (*trainer)->run();
  ASSERT_TRUE(summary.ok());
  EXPECT_GT(summary->cuts.history_events_cut, 0);
  EXPECT_GT(summary->cuts.candidates_cut, 0);
  EXPECT_NE(features::cuts_text(summary->cuts).find("batch.history_len"), std::string::npos);
}

TEST(StopRequest, HooksAreCalledByTheRequestOrAtOnceAndNotAfterTheirEnd) {
  StopRequest stop;
  int early = 0, gone = 0, late = 0;
  const StopRequest::Hook a(stop, [&] { ++early; });
  {
    const StopRequest::Hook b(stop, [&] { ++gone; });
  }
  EXPECT_FALSE(stop.requested());
  stop.request();
  EXPECT_TRUE(stop.requested());
  const StopRequest::Hook c(stop, [&] { ++late; });
  EXPECT_EQ(early, 1);
  EXPECT_EQ(gone, 0);
  EXPECT_EQ(late, 1);
}

}  // namespace
}  // namespace paceline::train
