#include "train/run_directory.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace paceline::train {
namespace {
namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "paceline-run-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string text(const std::string& file) const {
    std::ostringstream out;
    out << std::ifstream(dir_ / file).rdbuf();
    return out.str();
  }
  void write(const std::string& file, const std::string& content) const {
    std::ofstream(dir_ / file) << content;
  }

  fs::path dir_;
};

TEST_F(RunDirectoryTest, OneTrainerAtATime) {
  auto first = RunDirectory::open(dir_ / "run");
  ASSERT_TRUE(first.ok());
  auto second = RunDirectory::open(dir_ / "run");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  { const RunDirectory gone = std::move(*first); }
  EXPECT_TRUE(RunDirectory::open(dir_ / "run").ok());
}

TEST_F(RunDirectoryTest, ForgetsNewerAndTornLines) {
  auto run = RunDirectory::open(dir_);
  ASSERT_TRUE(run.ok());
  write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\nnot json\n{\"step\":3}\n{\"step\":2,\"lo");
  write("eval.jsonl", "{\"step\":2,\"action\":\"like\"}\n{\"step\":4,\"action\":\"like\"}\n");
  ASSERT_TRUE(run->forget_after(2).ok());
  EXPECT_EQ(text("metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(text("eval.jsonl"), "{\"step\":2,\"action\":\"like\"}\n");
  ASSERT_TRUE(run->append_metrics({{"step", 3}}).ok());
  EXPECT_EQ(text("metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(RunDirectoryTest, ALossReadsBackToTheSameBits) {
  auto run = RunDirectory::open(dir_);
  ASSERT_TRUE(run.ok());
  for (const double loss : {0.1, 1.0 / 3.0, 2.1591812345678901, 5e-324, 1e300}) {
    ASSERT_TRUE(run->append_metrics({{"step", 1}, {"loss", loss}}).ok());
    std::istringstream lines(text("metrics.jsonl"));
    std::string last;
    for (std::string line; std::getline(lines, line);) last = line;
    EXPECT_EQ(nlohmann::json::parse(last)["loss"].get<double>(), loss);
  }
}

TEST_F(RunDirectoryTest, ConfigIsReplacedWhole) {
  auto run = RunDirectory::open(dir_);
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(run->write_config("first = 1\n").ok());
  ASSERT_TRUE(run->write_config("second = 2\n").ok());
  const std::string written = text("config.toml");
  EXPECT_TRUE(written.starts_with("# Written by a run of paceline"));
  EXPECT_TRUE(written.ends_with("\nsecond = 2\n"));
  EXPECT_EQ(written.find("first"), std::string::npos);
}

TEST_F(RunDirectoryTest, FilesOfOthersAreRefused) {
  auto run = RunDirectory::open(dir_);
  ASSERT_TRUE(run.ok());
  const std::string checkpoints = (dir_ / "checkpoints").string();
  EXPECT_TRUE(run->check_is_run(checkpoints).ok()) << "a new directory";
  write("metrics.jsonl", "{}\n");
  EXPECT_FALSE(run->check_is_run(checkpoints).ok()) << "metrics without a run";
  write("config.toml", "a = 1\n");
  EXPECT_FALSE(run->check_is_run(checkpoints).ok()) << "a config that a person wrote";
  ASSERT_TRUE(run->write_config("[run]\ndir = \"" + dir_.string() + "\"\n").ok());
  EXPECT_TRUE(run->check_is_run(checkpoints).ok()) << "a run";
}

TEST_F(RunDirectoryTest, CheckpointsAreLockedToo) {
  auto one = RunDirectory::open(dir_ / "one"), two = RunDirectory::open(dir_ / "two");
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE(one->lock_checkpoints(dir_ / "shared").ok());
  auto refused = two->lock_checkpoints(dir_ / "shared");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
}

TEST_F(RunDirectoryTest, KnowsWhatWasEvaluated) {
  auto run = RunDirectory::open(dir_);
  ASSERT_TRUE(run.ok());
  write("eval.jsonl", "{\"step\":4,\"split\":\"valid\"}\n");
  EXPECT_TRUE(run->has_evaluation(4, "valid"));
  EXPECT_FALSE(run->has_evaluation(4, "test"));
  EXPECT_FALSE(run->has_evaluation(5, "valid"));
}

TEST_F(RunDirectoryTest, APathThatCannotBeADirectoryIsAnIoError) {
  write("file", "in the way");
  auto run = RunDirectory::open(dir_ / "file" / "run");
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code(), Code::kIo);
}

}  // namespace
}  // namespace paceline::train
