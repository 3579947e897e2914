// What somebody could put in the place of a checkpoint: refused with file and reason, without a
// crash, without a large allocation, and nothing outside of the directory is read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint_testing.hpp"
#include "checkpoint/hashed_file.hpp"
#include "checkpoint/manifest.hpp"

namespace paceline::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::DeltaSample;
using ::testing::HasSubstr;
using testing::names_in;
using testing::Sample;
using testing::slurp;
using testing::spill;
using testing::TempDir;

// The file and the manifest, with hashes and sizes as if they had been written so.
void replace_in(const fs::path& checkpoint, const std::string& name, const std::string& bytes) {
  spill(checkpoint / name, bytes);
  auto manifest = parse_manifest(slurp(checkpoint / "MANIFEST.json"), "");
  ASSERT_TRUE(manifest.ok());
  for (auto& f : manifest->files) {
    if (f.name == name) f = {name, bytes.size(), hash_of(bytes)};
  }
  spill(checkpoint / "MANIFEST.json", manifest_text(*manifest));
}

void edit(const fs::path& checkpoint, const std::string& name, const std::string& from,
          const std::string& to) {
  auto bytes = slurp(checkpoint / name);
  const auto at = bytes.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  replace_in(checkpoint, name, bytes);
}

// A manifest with a right hash of its own.
std::string signed_text(std::string text) {
  const auto digits = text.rfind("\"xxh3\": \"") + 9;
  text.replace(digits, 16, std::string(16, '0'));
  return text.replace(digits, 16, fmt::format("{:016x}", hash_of(text)));
}

class Hostile : public ::testing::Test {
 protected:
  Hostile() {
    Sample first(1), second(2);
    second.content.shard_bytes = 300;
    EXPECT_TRUE(publish(dir_.path(), first.content).ok());
    EXPECT_TRUE(publish(dir_.path(), second.content).ok());
  }
  fs::path newest() const { return dir_ / "step_000000000002"; }

  // Refused as broken, by every call, with `file` and `says`; the one before is used.
  void expect_refused(const std::string& file, const std::string& says) {
    const auto info = verify(newest());
    ASSERT_TRUE(info.ok());
    EXPECT_FALSE(info->complete);
    EXPECT_THAT(info->why,
                HasSubstr(file.empty() ? newest().string() : (newest() / file).string()));
    EXPECT_THAT(info->why, HasSubstr(says));
    const auto loaded = load(newest());
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code(), Code::kCorruptData) << loaded.error().text();
    const auto used = load_newest(dir_.path());
    ASSERT_TRUE(used.ok()) << used.error().text();
    EXPECT_EQ(used->step, 1);
  }

  TempDir dir_;
};

struct Lie {
  const char* from;
  const char* to;
  const char* says;
};

// Each as a manifest whose own hash is right and whose size is unchanged or said anew.
TEST(HostileManifest, IsRefused) {
  const Lie all[] = {
      {"model.safetensors", "/etc/x/safetensors", "it names"},
      {"\"model.safetensors", "\"../l.safetensors", "it names"},
      {"model.safetensors", "model/safetensors", "it names"},
      {"model.safetensors", "state.json       ", "it names"},
      {"optimizer.safetensors", "tables.safetensors   ", "it names"},
      {"model.safetensors", "tables.safetensors", "it names"},
      {"tables.safetensors", "tables-00000-of-00001.safetensors", "it names"},
      {"tables.safetensors", "tables-00001-of-00002.safetensors", "it names"},
      {"\"format\": \"paceline", "\"format\": \"somebody", "not a manifest"},
      {"\"step\": 2", "\"step\": -2", "step"},
      {"\"step\": 2", "\"step\": 2.5", "step"},
      {"\"step\": 2", "\"step\": 3", "of step 3"},
      {"\"step\": 2", "\"step\": 18446744073709551615", "step"},
      {"\"files\"", "\"filed\"", "files is not a list"},
      {"\"step\": 2", "\"step\": 2, \"base\": 3", "base"},
      {"\"step\": 2", "\"step\": 2, \"base\": {\"step\": 1}", "base"},
      {"\"step\": 2", "\"step\": 2, \"base\": {\"step\": 1, \"xxh3\": \"12\"}", "base"},
      {"\"step\": 2", "\"step\": 2, \"base\": {\"step\": 2, \"xxh3\": \"0123456789abcdef\"}",
       "not before"},
      {"\"step\": 2", "\"step\": 2, \"base\": {\"step\": -1, \"xxh3\": \"0123456789abcdef\"}",
       "not before"},
      {"\"bytes\": ", "\"bytes\": -", "{name, bytes, xxh3}"},
      {"\"bytes\": ", "\"bytes\": 1844674407370955", "bytes"},
  };
  for (const auto& lie : all) {
    SCOPED_TRACE(lie.to);
    const TempDir dir;
    ASSERT_TRUE(publish(dir.path(), Sample(1).content).ok());
    ASSERT_TRUE(publish(dir.path(), Sample(2).content).ok());
    const auto file = dir / "step_000000000002/MANIFEST.json";
    auto text = slurp(file);
    const auto at = text.find(lie.from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, std::string(lie.from).size(), lie.to);
    // Its own size, said anew until it fits.
    const auto said = text.rfind("\"bytes\": ") + 9;
    for (int i = 0; i < 3; ++i) {
      text.replace(said, text.find(',', said) - said, std::to_string(text.size()));
    }
    spill(file, signed_text(text));
    const auto info = verify(file.parent_path());
    EXPECT_FALSE(info->complete);
    EXPECT_THAT(info->why, HasSubstr(file.parent_path().string()));
    EXPECT_THAT(info->why, HasSubstr(lie.says));
    EXPECT_EQ(load_newest(dir.path())->step, 1);
    EXPECT_TRUE(fs::exists(dir / "step_000000000002.corrupt-1"));
  }
}

TEST(HostileManifest, OfAnotherVersionIsRefusedWithTheVersion) {
  for (const char* version : {"0", "3", "99999999999", "-1"}) {
    const TempDir dir;
    ASSERT_TRUE(publish(dir.path(), Sample(1).content).ok());
    const auto file = dir / "step_000000000001/MANIFEST.json";
    auto text = slurp(file);
    text.replace(text.find("\"version\": 2"), 12, std::string("\"version\": ") + version);
    spill(file, signed_text(text));
    const auto loaded = load_newest(dir.path());
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code(), Code::kUnavailable);
    EXPECT_THAT(loaded.error().text(), HasSubstr(std::string("version ") + version));
    EXPECT_TRUE(fs::exists(file));
  }
}

// Version 1 had one file of tables without metadata.
TEST(OldManifest, OfVersion1IsRead) {
  const TempDir dir;
  const Sample sample(1);
  ASSERT_TRUE(publish(dir.path(), sample.content).ok());
  const auto path = dir / "step_000000000001";
  fs::remove(path / "tables.safetensors");
  ASSERT_TRUE(write_safetensors(path / "tables.safetensors", sample.content.tables).ok());
  replace_in(path, "tables.safetensors", slurp(path / "tables.safetensors"));
  auto text = slurp(path / "MANIFEST.json");
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 1");
  spill(path / "MANIFEST.json", signed_text(text));
  const auto loaded = load_newest(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  testing::expect_sample(*loaded);
}

TEST_F(Hostile, ManifestMissing) {
  fs::remove(newest() / "MANIFEST.json");
  expect_refused("MANIFEST.json", "missing");
}

TEST_F(Hostile, ManifestOfNothingButBrackets) {
  spill(newest() / "MANIFEST.json",
        signed_text(std::string(100'000, '[') + "\"xxh3\": \"0000000000000000\""));
  expect_refused("MANIFEST.json", "nests deeper");
}

TEST_F(Hostile, ManifestTooLarge) {
  fs::resize_file(newest() / "MANIFEST.json", std::uint64_t{1} << 40);
  expect_refused("MANIFEST.json", "at most");
}

TEST_F(Hostile, StateOfNothingButBrackets) {
  replace_in(newest(), "state.json", std::string(1'000'000, '['));
  expect_refused("state.json", "nests deeper");
}

TEST_F(Hostile, StateThatIsNotJson) {
  replace_in(newest(), "state.json", "{\"step\": 2");
  expect_refused("state.json", "not JSON");
}

TEST_F(Hostile, StateTooLarge) {
  fs::resize_file(newest() / "state.json", std::uint64_t{1} << 40);
  auto manifest = parse_manifest(slurp(newest() / "MANIFEST.json"), "");
  for (auto& f : manifest->files) {
    if (f.name == "state.json") f.bytes = std::uint64_t{1} << 40;
  }
  spill(newest() / "MANIFEST.json", manifest_text(*manifest));
  expect_refused("state.json", "at most");
}

TEST_F(Hostile, PartOfAnotherDtype) {
  edit(newest(), "tables-00001-of-00003.safetensors", R"("table.ids":{"dtype":"I32")",
       R"("table.ids":{"dtype":"F32")");
  expect_refused("tables-00001-of-00003.safetensors",
                 "tensor table.ids is F32 of shape [14], the table needs I32 of shape [14]");
}

TEST_F(Hostile, PartOfAnotherShape) {
  edit(newest(), "tables-00001-of-00003.safetensors", R"("shape":[14,4])", R"("shape":[7,8] )");
  expect_refused("tables-00001-of-00003.safetensors", "tensor table.rows is F32 of shape [7, 8]");
}

TEST_F(Hostile, PartsInAnotherOrder) {
  const auto one = slurp(newest() / "tables-00000-of-00003.safetensors");
  replace_in(newest(), "tables-00000-of-00003.safetensors",
             slurp(newest() / "tables-00001-of-00003.safetensors"));
  replace_in(newest(), "tables-00001-of-00003.safetensors", one);
  expect_refused("tables-00000-of-00003.safetensors", "begins with row 14");
}

TEST_F(Hostile, PartsThatEndEarly) {
  const char* const name = "tables-00002-of-00003.safetensors";
  const Sample sample(2);
  auto views = sample.content.tables;
  for (auto& v : views) {
    const auto size = v.bytes.size() / 33;
    v.bytes = v.bytes.subspan(28 * size, 2 * size);
    v.shape[0] = 2;
  }
  fs::remove(newest() / name);
  const Metadata metadata = {{"begin", "28"}, {"end", "30"}, {"entries", "33"}, {"rows", "33"}};
  ASSERT_TRUE(write_safetensors(newest() / name, views, metadata).ok());
  replace_in(newest(), name, slurp(newest() / name));
  expect_refused("", "end at row 30 of 33");
}

TEST_F(Hostile, MoreRowsThanTheFilesHold) {
  const char* const name = "tables-00000-of-00003.safetensors";
  edit(newest(), name, R"("entries":"33","rows":"33")", R"("entries":"99","rows":"99")");
  expect_refused(name, "more than the");
}

TEST_F(Hostile, RowsThatOverflow) {
  const char* const name = "tables-00000-of-00003.safetensors";
  auto bytes = slurp(newest() / name);
  const auto end = bytes.find('}') + 1;
  const std::string entry = bytes.substr(8, end - 8);
  std::string longer = entry;
  for (const char* key : {"\"entries\":\"33\"", "\"rows\":\"33\""}) {
    longer.replace(longer.find(key) + std::string(key).size() - 3, 2, "999999999999999999");
  }
  bytes.replace(8, end - 8, longer);
  // The header grows into its padding; its length is said anew.
  const auto grown = longer.size() - entry.size();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  length += grown;
  std::memcpy(bytes.data(), &length, 8);
  replace_in(newest(), name, bytes);
  expect_refused(name, "more than the");
}

TEST_F(Hostile, NoMetadataInAPart) {
  const char* const name = "tables-00000-of-00003.safetensors";
  edit(newest(), name, R"("begin":"0")", R"("begun":"0")");
  expect_refused(name, "does not say begin");
}

TEST_F(Hostile, MetadataThatIsNotAString) {
  const char* const name = "tables-00000-of-00003.safetensors";
  edit(newest(), name, R"("begin":"0")", R"("begin":000)");
  expect_refused(name, "header");
}

TEST_F(Hostile, LinksAndPipesInPlaceOfFiles) {
  const auto file = newest() / "model.safetensors";
  fs::rename(file, dir_ / "elsewhere");
  fs::create_symlink(dir_ / "elsewhere", file);
  EXPECT_THAT(verify(newest())->why, HasSubstr("symbolic link"));
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(verify(newest())->why, HasSubstr("not a regular file"));
  fs::remove(file);
  fs::create_directory(file);
  expect_refused("model.safetensors", "not a regular file");
}

TEST_F(Hostile, ALinkInPlaceOfAStepIsReportedAndStays) {
  const TempDir other;
  ASSERT_TRUE(publish(other.path(), Sample(7).content).ok());
  fs::create_symlink(other / "step_000000000007", dir_ / "step_000000000007");
  const auto loaded = load_newest(dir_.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->step, 2);
  const auto infos = list(dir_.path(), true);
  ASSERT_EQ(infos->size(), 3U);
  EXPECT_FALSE((*infos)[2].complete);
  EXPECT_THAT((*infos)[2].why, HasSubstr("symbolic link"));
  EXPECT_EQ(load(dir_ / "step_000000000007").error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(fs::is_symlink(dir_ / "step_000000000007"));
  // It makes room for a step of ours; what it points to is not touched.
  ASSERT_TRUE(publish(dir_.path(), Sample(7).content).ok());
  EXPECT_TRUE(fs::is_symlink(dir_ / "step_000000000007.corrupt-1"));
  EXPECT_TRUE(verify(other / "step_000000000007")->complete);
}

TEST_F(Hostile, LatestIsFollowedToAStepBesideItOnly) {
  EXPECT_EQ(load(dir_ / "latest")->step, 2);
  EXPECT_EQ(load(dir_ / "latest/")->step, 2);
  const TempDir other;
  ASSERT_TRUE(publish(other.path(), Sample(7).content).ok());
  for (const auto& target : {other / "step_000000000007", fs::path("../x"), fs::path("latest")}) {
    fs::remove(dir_ / "latest");
    fs::create_symlink(target, dir_ / "latest");
    const auto loaded = load(dir_ / "latest");
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(loaded.error().text(), HasSubstr(target.string()));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(load_newest(dir_.path())->step, 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not followed"));
  }
}

TEST(HostileDifference, IsRefused) {
  struct Change {
    const char* name;
    std::int64_t rows[3];
    const char* says;
  };
  const Change all[] = {{"descending", {5, 3, 9}, "row 3 after row 5"},
                        {"twice", {5, 5, 9}, "row 5 after row 5"},
                        {"beyond", {5, 6, 33}, "row 33 after row 6"},
                        {"negative", {-1, 6, 7}, "row -1 after"}};
  for (const auto& change : all) {
    SCOPED_TRACE(change.name);
    const TempDir dir;
    const auto base = publish(dir.path(), Sample(1).content);
    DeltaSample sample(2, base->id, {5, 6, 9});
    ASSERT_TRUE(publish(dir.path(), sample.content).ok());
    const auto path = dir / "step_000000000002";
    auto bytes = slurp(path / "tables.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    std::memcpy(bytes.data() + 8 + length, change.rows, sizeof(change.rows));
    replace_in(path, "tables.safetensors", bytes);
    EXPECT_THAT(verify(path)->why, HasSubstr(change.says));
    EXPECT_EQ(load_newest(dir.path())->step, 1);
    EXPECT_TRUE(fs::exists(dir / "step_000000000002.corrupt-1"));
  }
}

}  // namespace
}  // namespace paceline::checkpoint
