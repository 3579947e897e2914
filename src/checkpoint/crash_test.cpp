// The process ends after every single file operation; what was not synced is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "checkpoint/checkpoint_testing.hpp"
#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::expect_sample;
using testing::names_in;
using testing::Sample;
using testing::spill;
using testing::TempDir;

constexpr int kCrashed = 77;

// Ends the process before operation `at`. With `lose_power`, files that were not synced lose half
// of their bytes first, as a journal that orders only metadata would leave them.
class CrashingOps : public FileOps {
 public:
  CrashingOps(int at, bool lose_power) : at_(at), lose_power_(lose_power) {}

 protected:
  Result<void> before(FileOp op, const fs::path& path) override {
    if (only_reads(op)) return {};
    if (count_++ == at_) {
      if (op == FileOp::kRemove) remove_a_part(path);
      crash();
    }
    if (op == FileOp::kCreate) unsynced_[path] = true;
    if (op == FileOp::kSyncFile) unsynced_.erase(path);
    return {};
  }

 private:
  // Removing a directory is many steps: the crash comes between them.
  static void remove_a_part(const fs::path& path) {
    std::error_code ec;
    const fs::directory_iterator it(path, ec);
    if (!ec && it != fs::directory_iterator()) fs::remove(it->path(), ec);
  }

  [[noreturn]] void crash() {
    for (const auto& [path, unsynced] : unsynced_) {
      std::error_code ec;
      // A file of a directory that was renamed meanwhile.
      auto file = path;
      if (!fs::exists(file, ec)) {
        const auto hidden = path.parent_path().filename().string();
        file = path.parent_path().parent_path() / hidden.substr(1, hidden.find('.', 1) - 1) /
               path.filename();
      }
      if (lose_power_ && fs::exists(file, ec)) fs::resize_file(file, fs::file_size(file) / 2, ec);
    }
    ::_exit(kCrashed);
  }

  int at_, count_ = 0;
  bool lose_power_;
  std::map<fs::path, bool> unsynced_;
};

// Runs `work` in a process of its own that crashes at operation `at`; false when it got through.
template <typename Work>
bool crashes(int at, bool lose_power, Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    CrashingOps ops(at, lose_power);
    work(ops);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == kCrashed || WEXITSTATUS(status) == 0))
      << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == kCrashed;
}

class Crash : public ::testing::TestWithParam<bool> {
 protected:
  // `at`: operations that a crash came before.
  static void tell(const char* what, int at) {
    std::printf("%s%s: %d points, none torn\n", what, GetParam() ? ", unsynced bytes lost" : "",
                at);
  }
};

TEST_P(Crash, WhilePublishingLeavesTheOldOrTheNewState) {
  int old_states = 0, new_states = 0;
  bool crashed = true;
  int at = 0;
  for (; crashed; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const TempDir dir;
    ASSERT_TRUE(publish(dir.path(), Sample(1).content).ok());
    crashed = crashes(at, GetParam(), [&](FileOps& ops) {
      const Sample sample(2);
      discard(publish_with(ops, dir.path(), sample.content));
    });
    const auto loaded = load_newest(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    expect_sample(*loaded);
    ++(loaded->step == 1 ? old_states : new_states);
    // What is published is whole: nothing had to be set aside.
    for (const auto& name : names_in(dir.path())) {
      EXPECT_EQ(name.find("corrupt"), std::string::npos) << name;
    }
    // The run goes on: the same step, or the one after, and no leftovers.
    const Sample next(loaded->step + 1);
    ASSERT_TRUE(publish(dir.path(), next.content).ok());
    ASSERT_TRUE(prune(dir.path(), {1}).ok());
    EXPECT_THAT(names_in(dir.path()),
                ::testing::ElementsAre("latest", step_name(loaded->step + 1)));
    expect_sample(*load_newest(dir.path()));
  }
  EXPECT_GE(old_states, 20);
  EXPECT_GE(new_states, 3);
  tell("process ended while publishing", at - 1);
}

TEST_P(Crash, WhilePublishingOverABrokenStep) {
  bool crashed = true;
  int at = 0;
  for (; crashed; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const TempDir dir;
    ASSERT_TRUE(publish(dir.path(), Sample(1).content).ok());
    ASSERT_TRUE(publish(dir.path(), Sample(2).content).ok());
    spill(dir / "step_000000000002/state.json", "{}");
    crashed = crashes(at, GetParam(), [&](FileOps& ops) {
      ::freopen("/dev/null", "w", stderr);
      const Sample sample(2);
      discard(publish_with(ops, dir.path(), sample.content));
    });
    const auto loaded = load_newest(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    expect_sample(*loaded);
    EXPECT_TRUE(fs::exists(dir / "step_000000000002.corrupt-1"));
  }
  tell("process ended while publishing over a broken step", at - 1);
}

TEST_P(Crash, WhilePruningKeepsTheNewest) {
  bool crashed = true;
  int at = 0;
  for (; crashed; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const TempDir dir;
    for (const std::int64_t step : {1, 2, 3, 4}) {
      ASSERT_TRUE(publish(dir.path(), Sample(step).content).ok());
    }
    crashed =
        crashes(at, GetParam(), [&](FileOps& ops) { discard(prune_with(ops, dir.path(), {2})); });
    const auto infos = list(dir.path(), true);
    ASSERT_TRUE(infos.ok());
    ASSERT_GE(infos->size(), 2U);
    for (const auto& info : *infos) EXPECT_TRUE(info.complete) << info.why;
    EXPECT_EQ(infos->back().step, 4);
    ASSERT_TRUE(prune(dir.path(), {2}).ok());
    EXPECT_THAT(names_in(dir.path()), ::testing::ElementsAre("latest", step_name(3), step_name(4)));
  }
  tell("process ended while pruning", at - 1);
}

TEST_P(Crash, WhileSettingAside) {
  bool crashed = true;
  int at = 0;
  for (; crashed; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const TempDir dir;
    for (const std::int64_t step : {1, 2, 3}) {
      ASSERT_TRUE(publish(dir.path(), Sample(step).content).ok());
      if (step > 1) spill(dir / (step_name(step) + "/state.json"), "{}");
    }
    crashed = crashes(at, GetParam(), [&](FileOps& ops) {
      ::freopen("/dev/null", "w", stderr);
      discard(load_newest_with(ops, dir.path()));
    });
    const auto loaded = load_newest(dir.path());
    ASSERT_TRUE(loaded.ok());
    EXPECT_EQ(loaded->step, 1);
    expect_sample(*loaded);
  }
  tell("process ended while setting aside", at - 1);
}

INSTANTIATE_TEST_SUITE_P(Process, Crash, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Power, Crash, ::testing::Values(true));

}  // namespace
}  // namespace paceline::checkpoint
