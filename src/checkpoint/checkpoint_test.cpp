#include "checkpoint/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>

#include "checkpoint/checkpoint_testing.hpp"
#include "checkpoint/hashed_file.hpp"
#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::expect_sample;
using testing::FailingOps;
using ::testing::HasSubstr;
using testing::names_in;
using testing::Sample;
using testing::slurp;
using testing::spill;
using testing::TempDir;

fs::path put(const fs::path& dir, std::int64_t step) {
  const Sample sample(step);
  auto path = publish(dir, sample.content);
  EXPECT_TRUE(path.ok()) << path.error().text();
  return path.ok() ? path->path : fs::path();
}

TEST(Checkpoint, RoundTrip) {
  const TempDir dir;
  const auto path = put(dir / "a/b/checkpoints", 12);
  EXPECT_EQ(path, dir / "a/b/checkpoints/step_000000000012");
  EXPECT_THAT(names_in(path),
              ElementsAre("MANIFEST.json", "model.safetensors", "optimizer.safetensors",
                          "state.json", "tables.safetensors"));
  EXPECT_THAT(names_in(path.parent_path()), ElementsAre("latest", "step_000000000012"));
  const auto loaded = load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  EXPECT_EQ(loaded->step, 12);
  EXPECT_EQ(loaded->path, path);
  expect_sample(*loaded);
}

TEST(Checkpoint, NewestIsLoadedAndLatestPointsAtIt) {
  const TempDir dir;
  for (const std::int64_t step : {1, 30, 2}) put(dir.path(), step);
  const auto loaded = load_newest(dir.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->step, 30);
  expect_sample(*loaded);
  // The link names what was published last.
  EXPECT_EQ(fs::read_symlink(dir / "latest"), "step_000000000002");
}

TEST(Checkpoint, NothingThere) {
  const TempDir dir;
  EXPECT_EQ(load_newest(dir / "none").error().code(), Code::kNotFound);
  EXPECT_EQ(load_newest(dir.path()).error().code(), Code::kNotFound);
  EXPECT_EQ(load(dir / "step_000000000001").error().code(), Code::kNotFound);
  EXPECT_EQ(verify(dir / "step_000000000001").error().code(), Code::kNotFound);
  EXPECT_TRUE(list(dir / "none", true)->empty());
  EXPECT_TRUE(prune(dir / "none", {1}).ok());
}

TEST(Checkpoint, ListTellsSizeAgeAndState) {
  const TempDir dir;
  for (const std::int64_t step : {5, 3}) put(dir.path(), step);
  spill(dir / "step_7", "no checkpoint");
  spill(dir / "step_000000000009", "a file, no checkpoint");
  const auto infos = list(dir.path(), false);
  ASSERT_TRUE(infos.ok());
  ASSERT_EQ(infos->size(), 2U);
  EXPECT_EQ((*infos)[0].step, 3);
  EXPECT_EQ((*infos)[1].step, 5);
  std::uint64_t bytes = 0;
  for (const auto& f : fs::directory_iterator((*infos)[0].path)) bytes += f.file_size();
  EXPECT_EQ((*infos)[0].bytes, bytes);
  EXPECT_TRUE((*infos)[0].complete);
  EXPECT_GE((*infos)[0].age_s, -1.0);
  EXPECT_LT((*infos)[0].age_s, 60.0);
}

TEST(Checkpoint, ACompleteCheckpointIsNeverOverwritten) {
  const TempDir dir;
  const auto path = put(dir.path(), 4);
  const auto before = slurp(path / "MANIFEST.json");
  Sample other(5);
  other.content.step = 4;
  const auto again = publish(dir.path(), other.content);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(again.error().text(), HasSubstr("not overwritten"));
  EXPECT_EQ(slurp(path / "MANIFEST.json"), before);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step_000000000004"));
}

TEST(Checkpoint, ABrokenStepIsSetAsideBeforeItIsWrittenAgain) {
  const TempDir dir;
  for (int n = 1; n <= 2; ++n) {
    const auto path = put(dir.path(), 4);
    spill(path / "state.json", "{}");
  }
  put(dir.path(), 4);
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000004", "step_000000000004.corrupt-1",
                          "step_000000000004.corrupt-2"));
  EXPECT_EQ(slurp(dir / "step_000000000004.corrupt-1/state.json"), "{}");
  expect_sample(*load_newest(dir.path()));
}

// Each file in turn, bits spread over all of it.
TEST(Checkpoint, AFlippedBitInAnyFileIsFoundAndTheOneBeforeIsUsed) {
  const char* const kFiles[] = {"model.safetensors", "optimizer.safetensors", "tables.safetensors",
                                "state.json", "MANIFEST.json"};
  for (const char* name : kFiles) {
    SCOPED_TRACE(name);
    const TempDir dir;
    put(dir.path(), 1);
    const auto path = put(dir.path(), 2);
    const std::string good = slurp(path / name);
    for (std::size_t k = 0; k < 24; ++k) {
      std::string bytes = good;
      const std::size_t at = k * (bytes.size() - 1) / 23;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << k % 8));
      spill(path / name, bytes);
      const auto info = verify(path);
      ASSERT_TRUE(info.ok());
      EXPECT_FALSE(info->complete) << "byte " << at;
      EXPECT_THAT(info->why, HasSubstr(name));
      EXPECT_FALSE((*list(dir.path(), true))[1].complete);
      EXPECT_EQ(load(path).error().code(), Code::kCorruptData);
    }
    ::testing::internal::CaptureStderr();
    const auto loaded = load_newest(dir.path());
    const auto warning = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->step, 1);
    expect_sample(*loaded);
    EXPECT_THAT(warning, HasSubstr("step_000000000002 is broken"));
    EXPECT_THAT(warning, HasSubstr(name));
    EXPECT_THAT(warning, HasSubstr("set aside as step_000000000002.corrupt-1"));
    EXPECT_THAT(names_in(dir.path()),
                ElementsAre("latest", "step_000000000001", "step_000000000002.corrupt-1"));
    // `latest` dangles now; that changes nothing.
    EXPECT_EQ(load_newest(dir.path())->step, 1);
    put(dir.path(), 2);
    EXPECT_EQ(load_newest(dir.path())->step, 2);
  }
}

TEST(Checkpoint, MissingOrTruncatedFilesAreFoundWithoutReadingThem) {
  for (const auto& name : {"model.safetensors", "optimizer.safetensors", "tables.safetensors",
                           "state.json", "MANIFEST.json"}) {
    for (const bool missing : {true, false}) {
      SCOPED_TRACE(std::string(name) + (missing ? " missing" : " truncated"));
      const TempDir dir;
      put(dir.path(), 1);
      const auto path = put(dir.path(), 2);
      if (missing) {
        fs::remove(path / name);
      } else {
        fs::resize_file(path / name, fs::file_size(path / name) / 2);
      }
      const auto infos = list(dir.path(), false);
      ASSERT_TRUE(infos.ok());
      EXPECT_TRUE((*infos)[0].complete);
      EXPECT_FALSE((*infos)[1].complete);
      EXPECT_THAT((*infos)[1].why, HasSubstr(name));
      const auto loaded = load_newest(dir.path());
      ASSERT_TRUE(loaded.ok()) << loaded.error().text();
      EXPECT_EQ(loaded->step, 1);
      EXPECT_TRUE(fs::exists(dir / "step_000000000002.corrupt-1"));
    }
  }
}

TEST(Checkpoint, AllBrokenIsAnErrorThatNamesEach) {
  const TempDir dir;
  fs::create_directory(dir / "step_000000000001");
  spill(put(dir.path(), 2) / "state.json", "{}");
  const auto loaded = load_newest(dir.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), Code::kCorruptData);
  EXPECT_THAT(loaded.error().text(), HasSubstr("step_000000000001: "));
  EXPECT_THAT(loaded.error().text(), HasSubstr("step_000000000002: "));
  EXPECT_THAT(loaded.error().text(), HasSubstr("state.json"));
  EXPECT_EQ(load_newest(dir.path()).error().code(), Code::kNotFound);
}

TEST(Checkpoint, ADirectoryUnderAnotherStepsNameIsBroken) {
  const TempDir dir;
  const auto path = put(dir.path(), 1);
  fs::rename(path, dir / "step_000000000008");
  EXPECT_THAT(verify(dir / "step_000000000008")->why, HasSubstr("of step 1"));
}

// An intact checkpoint of another version is no broken one: it must not be set aside.
TEST(Checkpoint, ANewerVersionIsAnErrorAndStays) {
  const TempDir dir;
  put(dir.path(), 1);
  const auto path = put(dir.path(), 2);
  auto text = slurp(path / "MANIFEST.json");
  const auto at = text.find("\"version\": 2");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "\"version\": 3");
  const auto digits = text.rfind("\"xxh3\": \"") + 9;
  text.replace(digits, 16, std::string(16, '0'));
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>(hash_of(text)));
  text.replace(digits, 16, hash);
  spill(path / "MANIFEST.json", text);
  const auto loaded = load_newest(dir.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), Code::kUnavailable);
  EXPECT_THAT(loaded.error().text(), HasSubstr("version 3"));
  const Sample sample(2);
  EXPECT_EQ(publish(dir.path(), sample.content).error().code(), Code::kUnavailable);
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000001", "step_000000000002"));
}

TEST(Checkpoint, PruneKeepsTheNewestCompleteOnes) {
  const TempDir dir;
  for (const std::int64_t step : {1, 2, 3, 4, 5}) put(dir.path(), step);
  spill(dir / "step_000000000005/model.safetensors", "short");
  fs::create_directory(dir / "step_000000000006.corrupt-1");
  fs::create_directories(dir / ".step_000000000009.tmp-1-0/x");
  fs::create_directories(dir / ".step_000000000009.old-1-0");
  fs::create_symlink("step_000000000001", dir / ".latest.tmp-1-0");
  spill(dir / ".notes", "mine");
  spill(dir / ".step_notes", "mine");
  ASSERT_TRUE(prune(dir.path(), {2}).ok());
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre(".notes", ".step_notes", "latest", "step_000000000003",
                          "step_000000000004", "step_000000000005", "step_000000000006.corrupt-1"));
  expect_sample(*load_newest(dir.path()));
}

TEST(Checkpoint, StepsOutsideTheRangeAndStateThatIsNotUtf8) {
  const TempDir dir;
  for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{1'000'000'000'000}}) {
    Content content;
    content.step = step;
    EXPECT_EQ(publish(dir.path(), content).error().code(), Code::kInvalidArgument);
  }
  Content content;
  content.state = {{"name", "\xff"}};
  EXPECT_EQ(publish(dir.path(), content).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(names_in(dir.path()).empty());
}

// Every operation fails once: nothing is published, the hidden directory is gone, the old stays.
TEST(Checkpoint, AnyFailureLeavesTheOldStateAndNoLeftovers) {
  int failures = 0, at = 0;
  for (;; ++at) {
    const TempDir dir;
    put(dir.path(), 1);
    const Sample sample(2);
    FailingOps ops(at, false);
    ::testing::internal::CaptureStderr();
    const auto published = publish_with(ops, dir.path(), sample.content);
    const auto warning = ::testing::internal::GetCapturedStderr();
    SCOPED_TRACE("operation " + std::to_string(at));
    if (published.ok()) {
      // Only what comes after publishing may fail without an error, and it says so.
      const bool failed = ops.count() > at;
      EXPECT_EQ(failed, warning.find(FailingOps::kText) != std::string::npos) << warning;
      EXPECT_EQ(load_newest(dir.path())->step, 2);
      expect_sample(*load_newest(dir.path()));
      EXPECT_THAT(names_in(dir.path()),
                  ElementsAre("latest", "step_000000000001", "step_000000000002"));
      if (!failed) break;
      continue;
    }
    ++failures;
    EXPECT_EQ(published.error().code(), Code::kIo);
    EXPECT_THAT(published.error().text(), HasSubstr(FailingOps::kText));
    EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step_000000000001"));
    EXPECT_EQ(load_newest(dir.path())->step, 1);
  }
  EXPECT_GE(failures, 20);
  std::printf("operation failed while publishing: %d points, none torn\n", at);
}

class RecordingOps : public FileOps {
 public:
  std::vector<std::string> seen;

 protected:
  Result<void> before(FileOp op, const fs::path& path) override {
    const auto name = path.filename().string();
    if (op == FileOp::kSyncFile) seen.push_back("sync " + name);
    if (op == FileOp::kSyncDirectory)
      seen.push_back(name[0] == '.' ? "sync hidden" : "sync parent");
    if (op == FileOp::kRename) seen.push_back("rename to " + name);
    return {};
  }
};

// What a power loss may not undo, in the order that makes it so.
TEST(Checkpoint, EverythingIsSyncedBeforeItCounts) {
  const TempDir dir;
  const Sample sample(2);
  RecordingOps ops;
  ASSERT_TRUE(publish_with(ops, dir.path(), sample.content).ok());
  EXPECT_THAT(
      ops.seen,
      ElementsAre("sync tables.safetensors", "sync model.safetensors", "sync optimizer.safetensors",
                  "sync state.json", "sync MANIFEST.json", "sync hidden",
                  "rename to step_000000000002", "sync parent", "rename to latest", "sync parent"));
}

// The disk stays full, so that even cleaning up fails: the leftover is hidden, prune removes it.
TEST(Checkpoint, APersistentFailureLeavesOnlyHiddenFiles) {
  for (int at = 0;; ++at) {
    const TempDir dir;
    put(dir.path(), 1);
    const Sample sample(2);
    FailingOps ops(at, true);
    ::testing::internal::CaptureStderr();
    const auto published = publish_with(ops, dir.path(), sample.content);
    ::testing::internal::GetCapturedStderr();
    SCOPED_TRACE("operation " + std::to_string(at));
    const auto loaded = load_newest(dir.path());
    ASSERT_TRUE(loaded.ok());
    expect_sample(*loaded);
    // Where even taking back an unsynced rename fails, the new one is there, and whole.
    if (published.ok() || ops.failed() != FileOp::kSyncDirectory) {
      EXPECT_EQ(loaded->step, published.ok() ? 2 : 1);
    }
    ASSERT_TRUE(prune(dir.path(), {9}).ok());
    for (const auto& name : names_in(dir.path())) EXPECT_NE(name.front(), '.') << name;
    if (published.ok() && ops.count() <= at) break;
  }
}

// Real refusals of the operating system.
TEST(Checkpoint, SystemErrorsComeWithPathAndText) {
  const TempDir dir;
  spill(dir / "file", "");
  const Sample sample(1);
  const auto under_file = publish(dir / "file", sample.content);
  ASSERT_FALSE(under_file.ok());
  EXPECT_EQ(under_file.error().code(), Code::kIo);
  EXPECT_THAT(under_file.error().text(), HasSubstr((dir / "file").string()));

  struct rlimit limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small { 512, limit.rlim_max };
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto too_large = publish(dir / "run", sample.content);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code(), Code::kIo);
  EXPECT_THAT(too_large.error().text(), HasSubstr("File too large"));
  EXPECT_THAT(too_large.error().text(), HasSubstr(".safetensors"));
  EXPECT_TRUE(names_in(dir / "run").empty());
}

TEST(Checkpoint, AReadOnlyDirectoryStillFallsBack) {
  const TempDir dir;
  put(dir.path(), 1);
  spill(put(dir.path(), 2) / "state.json", "{}");
  FailingOps ops(0, true, true);  // every operation that writes
  ::testing::internal::CaptureStderr();
  const auto loaded = load_newest_with(ops, dir.path());
  const auto warning = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->step, 1);
  EXPECT_THAT(warning, HasSubstr("it stays"));
  EXPECT_TRUE(fs::exists(dir / "step_000000000002"));
}

TEST(Checkpoint, ALinkOrDirectoryNamedLatestIsNoObstacle) {
  const TempDir dir;
  fs::create_symlink("nowhere", dir / "latest");
  put(dir.path(), 1);
  EXPECT_EQ(fs::read_symlink(dir / "latest"), "step_000000000001");
  fs::remove(dir / "latest");
  fs::create_directories(dir / "latest/mine");
  ::testing::internal::CaptureStderr();
  put(dir.path(), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("latest was not updated"));
  EXPECT_TRUE(fs::exists(dir / "latest/mine"));
  EXPECT_EQ(load_newest(dir.path())->step, 2);
}

}  // namespace
}  // namespace paceline::checkpoint
