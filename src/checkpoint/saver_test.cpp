#include "checkpoint/saver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_testing.hpp"

namespace paceline::checkpoint {
namespace {

using testing::FailingOps;
using testing::TempDir;

// Every file operation waits for the gate, so that a test decides when the disk goes on.
class GatedOps : public FileOps {
 public:
  void open_gate() { open_.store(true); }

 protected:
  Result<void> before(FileOp, const std::filesystem::path&) override {
    while (!open_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  }

 private:
  std::atomic<bool> open_{false};
};

// Fails while it is told to.
class BadDisk : public FileOps {
 public:
  std::atomic<bool> bad{false};

 protected:
  Result<void> before(FileOp op, const std::filesystem::path& path) override {
    if (!bad.load() || only_reads(op) || op == FileOp::kRemove) return {};
    return Error(Code::kIo, path.string() + ": no space left");
  }
};

// A state that trains: each step moves every dense value and some table rows.
class Training {
 public:
  static constexpr std::int64_t kRows = 100000, kWidth = 16, kDense = 5000;

  Training() : dense_(kDense), moments_(kDense), table_(kRows * kWidth), sums_(kRows) {
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<float>(i % 977);
  }

  Content content() const {
    Content c;
    c.step = step_;
    c.model = {{"weights", Dtype::kF32, {kDense}, std::as_bytes(std::span(dense_))}};
    c.optimizer = {{"moments", Dtype::kF32, {kDense}, std::as_bytes(std::span(moments_))}};
    c.tables = {{"table.rows", Dtype::kF32, {kRows, kWidth}, std::as_bytes(std::span(table_))},
                {"table.sums", Dtype::kF32, {kRows}, std::as_bytes(std::span(sums_))}};
    c.state = {{"step", step_}, {"loss", 0.5 / static_cast<double>(step_ + 1)}};
    c.shard_bytes = 1 << 16;
    return c;
  }

  std::vector<std::int32_t> lookups() const {
    std::vector<std::int32_t> rows{-1};
    for (std::int64_t i = 0; i < 40; ++i) {
      rows.push_back(static_cast<std::int32_t>((step_ * 31 + i * i * 7) % kRows));
    }
    return rows;
  }

  // The dense part may change as soon as a save has begun, the tables after its copy.
  void step(Saver& saver) {
    ++step_;
    for (auto& w : dense_) w += 1.0F;
    for (auto& m : moments_) m -= 0.5F;
    ASSERT_TRUE(saver.before_table_update().ok());
    const auto rows = lookups();
    saver.touch(rows);
    for (const auto row : rows) {
      if (row < 0) continue;
      const auto at = static_cast<std::size_t>(row);
      sums_[at] += 1.0F;
      for (std::size_t k = 0; k < kWidth; ++k) table_[at * kWidth + k] += 0.25F;
    }
  }
  std::int64_t at() const { return step_; }

  // A copy of everything, to compare with later.
  struct Kept {
    std::vector<std::vector<std::byte>> bytes;
    nlohmann::json state;
  };
  Kept keep() const {
    Kept kept;
    const Content c = content();
    for (const auto* part : {&c.model, &c.optimizer, &c.tables}) {
      for (const auto& t : *part) kept.bytes.emplace_back(t.bytes.begin(), t.bytes.end());
    }
    kept.state = c.state;
    return kept;
  }

 private:
  std::int64_t step_ = 0;
  std::vector<float> dense_, moments_, table_, sums_;
};

void expect_kept(const std::filesystem::path& path, const Training::Kept& kept) {
  auto loaded = load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  std::size_t i = 0;
  for (const auto* part : {&loaded->model, &loaded->optimizer, &loaded->tables}) {
    for (const auto& t : *part) {
      SCOPED_TRACE(t.name);
      ASSERT_LT(i, kept.bytes.size());
      ASSERT_EQ(t.bytes.size_bytes(), kept.bytes[i].size());
      EXPECT_EQ(std::memcmp(t.bytes.data(), kept.bytes[i].data(), kept.bytes[i].size()), 0);
      ++i;
    }
  }
  EXPECT_EQ(i, kept.bytes.size());
  EXPECT_EQ(loaded->state, kept.state);
}

std::filesystem::path step_path(const std::filesystem::path& dir, std::int64_t step) {
  std::string digits = std::to_string(step);
  return dir / ("step_" + std::string(12 - digits.size(), '0') + digits);
}

struct How {
  bool background;
  std::int64_t deltas;
};

class SaverLaw : public ::testing::TestWithParam<How> {};

TEST_P(SaverLaw, WhatIsPublishedIsTheStateAtTheBoundaryToTheBit) {
  const TempDir dir;
  Training training;
  SaverOptions options{.dir = dir.path(),
                       .background = GetParam().background,
                       .retention = {.keep_last = 1000},
                       .table_deltas = GetParam().deltas,
                       .shard_bytes = 1 << 16};
  auto saver = Saver::create(options, training.content());
  ASSERT_TRUE(saver.ok()) << saver.error().text();
  std::vector<std::pair<std::int64_t, Training::Kept>> kept;
  for (int i = 0; i < 30; ++i) {
    training.step(**saver);
    if (i % 3 != 0) continue;
    kept.emplace_back(training.at(), training.keep());
    auto started = (*saver)->save(training.content());
    ASSERT_TRUE(started.ok()) << started.error().text();
    ASSERT_EQ(*started, SaveStart::kStarted);
    // A difference needs a full one that is published.
    if (i == 0) {
      ASSERT_TRUE((*saver)->finish().ok());
    }
  }
  for (int i = 0; i < 3; ++i) training.step(**saver);  // what comes later is not saved
  ASSERT_TRUE((*saver)->finish().ok());
  const auto reports = (*saver)->take_reports();
  ASSERT_EQ(reports.size(), kept.size());
  std::int64_t deltas = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    SCOPED_TRACE(kept[i].first);
    EXPECT_EQ(reports[i].step, kept[i].first);
    EXPECT_EQ(reports[i].error, "");
    deltas += reports[i].delta ? 1 : 0;
    expect_kept(step_path(dir.path(), kept[i].first), kept[i].second);
  }
  EXPECT_EQ(deltas > 0, GetParam().deltas > 0);
  const auto stats = (*saver)->stats();
  EXPECT_EQ(stats.saved, static_cast<std::int64_t>(kept.size()));
  EXPECT_EQ(stats.failed + stats.skipped, 0);
}

INSTANTIATE_TEST_SUITE_P(All, SaverLaw,
                         ::testing::Values(How{true, 0}, How{true, 3}, How{false, 0},
                                           How{false, 3}),
                         [](const auto& p) {
                           return std::string(p.param.background ? "Background" : "InPlace") +
                                  (p.param.deltas > 0 ? "Deltas" : "Full");
                         });

TEST(Saver, ARunThatGoesOnFromADifferenceMakesDifferencesToTheSameBase) {
  const TempDir dir;
  Training training;
  const SaverOptions options{.dir = dir.path(), .table_deltas = 8};
  {
    auto saver = Saver::create(options, training.content());
    ASSERT_TRUE(saver.ok());
    for (int i = 0; i < 2; ++i) {
      training.step(**saver);
      ASSERT_TRUE((*saver)->save(training.content()).ok());
      ASSERT_TRUE((*saver)->finish().ok());
    }
  }
  class Nothing : public Receiver {
    Result<void> state(const nlohmann::json&, const std::filesystem::path&) override { return {}; }
    Result<std::optional<std::span<std::byte>>> tensor(Part, const TensorInfo&,
                                                       const std::filesystem::path&) override {
      return std::optional<std::span<std::byte>>();
    }
  } nothing;
  auto restored = restore_newest(dir.path(), nothing);
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  ASSERT_TRUE(restored->base.has_value());
  auto saver = Saver::create(options, training.content(), restored->base, restored->rows);
  ASSERT_TRUE(saver.ok());
  training.step(**saver);
  ASSERT_TRUE((*saver)->save(training.content()).ok());
  ASSERT_TRUE((*saver)->finish().ok());
  const auto reports = (*saver)->take_reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports[0].delta);
  expect_kept(reports[0].path, training.keep());
}

TEST(Saver, ALostBaseFailsOneSaveAndTheNextIsAFullOne) {
  const TempDir dir;
  Training training;
  auto saver = Saver::create({.dir = dir.path(), .table_deltas = 8}, training.content());
  ASSERT_TRUE(saver.ok());
  const auto save = [&] {
    training.step(**saver);
    EXPECT_TRUE((*saver)->save(training.content()).ok());
    const bool ok = (*saver)->finish().ok();
    return std::pair(ok, (*saver)->take_reports().at(0));
  };
  EXPECT_TRUE(save().first);
  std::filesystem::remove_all(step_path(dir.path(), 1));
  const auto [lost_ok, lost] = save();
  EXPECT_FALSE(lost_ok);
  EXPECT_NE(lost.error.find("is gone"), std::string::npos) << lost.error;
  const auto [ok, full] = save();
  EXPECT_TRUE(ok);
  EXPECT_FALSE(full.delta);
  expect_kept(full.path, training.keep());
}

TEST(Saver, SkipsAndCountsWhileTwoAreUnderWay) {
  const TempDir dir;
  Training training;
  auto ops = std::make_shared<GatedOps>();
  auto saver = Saver::create_with(
      ops, {.dir = dir.path(), .when_busy = WhenBusy::kSkip, .retention = {.keep_last = 100}},
      training.content());
  ASSERT_TRUE(saver.ok());
  std::vector<std::pair<std::int64_t, Training::Kept>> begun;
  std::int64_t skipped = 0;
  for (int i = 0; i < 6; ++i) {
    training.step(**saver);
    auto started = (*saver)->save(training.content());
    ASSERT_TRUE(started.ok());
    if (*started == SaveStart::kSkipped) {
      ++skipped;
    } else {
      begun.emplace_back(training.at(), training.keep());
    }
  }
  EXPECT_GE(skipped, 4);
  EXPECT_EQ((*saver)->stats().skipped, skipped);
  ops->open_gate();
  ASSERT_TRUE((*saver)->finish().ok());
  ASSERT_FALSE(begun.empty());
  for (const auto& [step, kept] : begun) expect_kept(step_path(dir.path(), step), kept);
}

TEST(Saver, AFailedSaveFreesItsSpaceAndTrainingGoesOn) {
  for (const bool background : {true, false}) {
    SCOPED_TRACE(background);
    const TempDir dir;
    Training training;
    auto ops = std::make_shared<BadDisk>();
    auto saver = Saver::create_with(
        ops, {.dir = dir.path(), .background = background, .fail_after = 2}, training.content());
    ASSERT_TRUE(saver.ok());
    training.step(**saver);
    ASSERT_TRUE((*saver)->save(training.content()).ok());
    ASSERT_TRUE((*saver)->finish().ok());
    const auto kept = training.keep();
    ops->bad.store(true);
    for (int i = 0; i < 2; ++i) {
      training.step(**saver);
      ASSERT_TRUE((*saver)->save(training.content()).ok());
      EXPECT_FALSE((*saver)->finish().ok());
    }
    auto reports = (*saver)->take_reports();
    ASSERT_EQ(reports.size(), 3U);
    EXPECT_EQ(reports[2].failed_in_a_row, 2);
    EXPECT_NE(reports[2].error.find("no space left"), std::string::npos);
    for (const auto& name : testing::names_in(dir.path())) {
      EXPECT_FALSE(name.starts_with(".step")) << name;
    }
    // As many as allowed: no further attempt, but for the one that must be made.
    training.step(**saver);
    EXPECT_FALSE((*saver)->save(training.content()).ok());
    ops->bad.store(false);
    auto must = (*saver)->save(training.content(), {.must = true});
    ASSERT_TRUE(must.ok());
    ASSERT_TRUE((*saver)->finish().ok());
    expect_kept(step_path(dir.path(), 1), kept);
    expect_kept(step_path(dir.path(), training.at()), training.keep());
  }
}

TEST(Saver, EveryOperationOfASaveThatFailsLeavesTheOneBefore) {
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    const TempDir dir;
    Training training;
    {
      auto first = Saver::create({.dir = dir.path(), .table_deltas = 4}, training.content());
      ASSERT_TRUE(first.ok());
      training.step(**first);
      ASSERT_TRUE((*first)->save(training.content()).ok());
      ASSERT_TRUE((*first)->finish().ok());
    }
    const auto before = training.keep();
    auto ops = std::make_shared<FailingOps>(at, false);
    auto saver = Saver::create_with(ops, {.dir = dir.path()}, training.content());
    ASSERT_TRUE(saver.ok());
    training.step(**saver);
    ASSERT_TRUE((*saver)->save(training.content()).ok());
    const bool saved = (*saver)->finish().ok();
    auto newest = load_newest(dir.path());
    ASSERT_TRUE(newest.ok()) << newest.error().text();
    if (saved) {
      expect_kept(newest->path, training.keep());
    } else if (newest->step == 1) {
      expect_kept(newest->path, before);
    } else {
      expect_kept(newest->path, training.keep());  // published, then its sync failed
    }
    if (ops->count() <= at) {
      EXPECT_GT(at, 20);
      std::printf("operation failed in a run's save: %d points, none torn\n", at);
      break;
    }
  }
}

TEST(Saver, AWaitBeyondTheLimitNamesWhatHangs) {
  const TempDir dir;
  Training training;
  auto ops = std::make_shared<GatedOps>();
  auto saver =
      Saver::create_with(ops, {.dir = dir.path(), .finish_limit_s = 0.2}, training.content());
  ASSERT_TRUE(saver.ok());
  training.step(**saver);
  ASSERT_TRUE((*saver)->save(training.content()).ok());
  auto ended = (*saver)->finish();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code(), Code::kUnavailable);
  const std::string text = ended.error().text();
  EXPECT_NE(text.find("step 1 in"), std::string::npos) << text;
  EXPECT_NE(text.find("checkpoint.finish_limit_s"), std::string::npos) << text;
  ops->open_gate();
  EXPECT_TRUE((*saver)->finish().ok());
}

TEST(Saver, WithoutFinishWhatIsBeingWrittenIsGivenUp) {
  const TempDir dir;
  Training training;
  auto saver = Saver::create({.dir = dir.path()}, training.content());
  ASSERT_TRUE(saver.ok());
  training.step(**saver);
  ASSERT_TRUE((*saver)->save(training.content()).ok());
  saver->reset();
  auto all = list(dir.path(), true);
  ASSERT_TRUE(all.ok());
  for (const auto& info : *all) EXPECT_TRUE(info.complete) << info.why;
}

TEST(Saver, MemoryIsWhatTheSnapshotsTake) {
  const TempDir dir;
  const Training training;
  std::size_t dense = 0, tables = 0;
  const Content content = training.content();
  for (const auto& t : content.model) dense += t.bytes.size();
  for (const auto& t : content.optimizer) dense += t.bytes.size();
  for (const auto& t : content.tables) tables += t.bytes.size();
  auto saver = Saver::create({.dir = dir.path()}, content);
  ASSERT_TRUE(saver.ok());
  EXPECT_GE((*saver)->memory_bytes(), 2 * dense + tables);
  EXPECT_LE((*saver)->memory_bytes(), 2 * dense + tables + 4096);
  auto in_place = Saver::create({.dir = dir.path(), .background = false}, content);
  ASSERT_TRUE(in_place.ok());
  EXPECT_LE((*in_place)->memory_bytes(), 4096U);
}

}  // namespace
}  // namespace paceline::checkpoint
