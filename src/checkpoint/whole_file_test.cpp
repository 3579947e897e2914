#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"

namespace paceline::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::FailingOps;
using ::testing::HasSubstr;
using testing::names_in;
using testing::Sample;
using testing::slurp;
using testing::spill;
using testing::TempDir;

// Each operation fails once: what was there stays to the byte until the new file is whole.
TEST(WholeFile, AFailureLeavesWhatWasThere) {
  const Sample sample(3);
  std::string whole;
  {
    const TempDir dir;
    ASSERT_TRUE(write_whole_safetensors(dir / "f", sample.content.model, {}, Existing::kRefuse));
    whole = slurp(dir / "f");
  }
  int failures = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const TempDir dir;
    spill(dir / "f", "before");
    FailingOps ops(at, false);
    const auto bytes =
        write_whole_with(ops, dir / "f", sample.content.model, {}, Existing::kReplace);
    EXPECT_THAT(names_in(dir.path()), ElementsAre("f"));
    if (bytes) {
      EXPECT_EQ(*bytes, whole.size());
      EXPECT_EQ(slurp(dir / "f"), whole);
      break;
    }
    ++failures;
    EXPECT_THAT(bytes.error().text(), HasSubstr(FailingOps::kText));
    // Behind the rename only its sync can fail.
    EXPECT_EQ(slurp(dir / "f"), ops.failed() == FileOp::kSyncDirectory ? whole : "before");
  }
  EXPECT_GE(failures, 6);
}

TEST(WholeFile, RefusesWhatItWouldSpoil) {
  const Sample sample(3);
  const TempDir dir;
  const auto error = [&](const fs::path& file, Existing existing) {
    const auto bytes = write_whole_safetensors(file, sample.content.model, {}, existing);
    return bytes ? std::string() : bytes.error().text();
  };
  spill(dir / "f", "before");
  EXPECT_THAT(error(dir / "f", Existing::kRefuse), HasSubstr("is there already"));
  EXPECT_EQ(slurp(dir / "f"), "before");
  fs::create_symlink("nowhere", dir / "link");
  EXPECT_THAT(error(dir / "link", Existing::kRefuse), HasSubstr("is there already"));
  fs::create_directory(dir / "folder");
  EXPECT_THAT(error(dir / "folder", Existing::kReplace), HasSubstr("no regular file"));
  EXPECT_THAT(error(dir / "none/f", Existing::kReplace), HasSubstr("there is no directory"));
  ASSERT_TRUE(publish(dir / "checkpoints", sample.content).ok());
  EXPECT_THAT(error(dir / "checkpoints/step_000000000003/model.safetensors", Existing::kReplace),
              HasSubstr("would lie in the checkpoint"));
  EXPECT_TRUE(verify(dir / "checkpoints/step_000000000003")->complete);

  // A link is replaced, not followed.
  fs::create_symlink("f", dir / "to_f");
  EXPECT_EQ(error(dir / "to_f", Existing::kReplace), "");
  EXPECT_FALSE(fs::is_symlink(dir / "to_f"));
  EXPECT_EQ(slurp(dir / "f"), "before");
}

}  // namespace
}  // namespace paceline::checkpoint
