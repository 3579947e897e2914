// Tables in parts, and checkpoints that hold the rows that changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.hpp"
#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::DeltaSample;
using ::testing::ElementsAre;
using testing::expect_sample;
using ::testing::HasSubstr;
using testing::names_in;
using testing::Sample;
using testing::slurp;
using testing::spill;
using testing::TempDir;

Base put(const fs::path& dir, std::int64_t step, std::uint64_t shard_bytes = 1 << 20) {
  Sample sample(step);
  sample.content.shard_bytes = shard_bytes;
  auto published = publish(dir, sample.content);
  EXPECT_TRUE(published.ok()) << published.error().text();
  return published.ok() ? published->id : Base();
}

void put_delta(const fs::path& dir, DeltaSample& sample, std::uint64_t shard_bytes = 1 << 20) {
  sample.content.shard_bytes = shard_bytes;
  const auto published = publish(dir, sample.content);
  ASSERT_TRUE(published.ok()) << published.error().text();
}

std::string flip(const fs::path& file, std::size_t at) {
  auto bytes = slurp(file);
  bytes[at % bytes.size()] = static_cast<char>(bytes[at % bytes.size()] ^ 4);
  spill(file, bytes);
  return bytes;
}

// A row of the sample's tables has 16 + 4 + 1 bytes, all 33 of them 693.
TEST(TableParts, AreCutBySizeAndReadBackWhole) {
  for (const std::uint64_t shard_bytes : {0u, 1u, 21u, 22u, 100u, 346u, 347u, 692u}) {
    SCOPED_TRACE(shard_bytes);
    const TempDir dir;
    put(dir.path(), 3, shard_bytes);
    const auto rows = std::max<std::uint64_t>(1, shard_bytes / 21);
    const auto parts = (33 + rows - 1) / rows;
    EXPECT_EQ(names_in(dir / "step_000000000003").size(), 4 + parts);
    const auto loaded = load_newest(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    expect_sample(*loaded);
    EXPECT_TRUE(verify(dir / "step_000000000003")->complete);
  }
}

TEST(TableParts, OfWhatFitsThereIsOne) {
  const TempDir dir;
  put(dir.path(), 1, 693);
  EXPECT_TRUE(fs::exists(dir / "step_000000000001/tables.safetensors"));
}

TEST(TableParts, SayWhichRowsTheyHold) {
  const TempDir dir;
  put(dir.path(), 1, 11 * 21);
  EXPECT_THAT(
      names_in(dir / "step_000000000001"),
      ElementsAre("MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json",
                  "tables-00000-of-00003.safetensors", "tables-00001-of-00003.safetensors",
                  "tables-00002-of-00003.safetensors"));
  const auto header =
      read_safetensors_header(dir / "step_000000000001/tables-00001-of-00003.safetensors");
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->metadata,
            (Metadata{{"begin", "11"}, {"end", "22"}, {"entries", "33"}, {"rows", "33"}}));
  EXPECT_EQ(header->tensors[0], (TensorInfo{"table.ids", Dtype::kI32, {11}}));
  EXPECT_EQ(header->tensors[1], (TensorInfo{"table.rows", Dtype::kF32, {11, 4}}));
}

TEST(TableParts, TensorsOfDifferentRowsAreRefused) {
  const TempDir dir;
  Sample sample(1);
  sample.content.tables.push_back(
      {"other", Dtype::kU8, {2}, sample.content.tables[0].bytes.first(2)});
  auto refused = publish(dir.path(), sample.content);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().text(), HasSubstr("other"));
  sample.content.tables.back().name = "table.row_index";
  sample.content.tables.back().shape = {33};
  sample.content.tables.back().bytes = sample.content.tables[0].bytes.first(33);
  EXPECT_EQ(publish(dir.path(), sample.content).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(TableParts, NoTablesAndNoRows) {
  const TempDir dir;
  Content none;
  none.step = 1;
  none.state = {{"a", 1}};
  ASSERT_TRUE(publish(dir.path(), none).ok());
  none.step = 2;
  none.tables = {{"table.rows", Dtype::kF32, {0, 4}, {}}};
  ASSERT_TRUE(publish(dir.path(), none).ok());
  const auto loaded = load_newest(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  EXPECT_EQ(loaded->tables[0].shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_TRUE(load(dir / "step_000000000001")->tables.empty());
}

TEST(Difference, RestoresRowsOverThoseOfItsBase) {
  const std::vector<std::vector<std::int64_t>> all = {
      {}, {0}, {32}, {0, 1, 2, 31, 32}, {5, 7, 9, 11, 13, 15, 17}};
  for (const auto& rows : all) {
    for (const std::uint64_t shard_bytes : {50u, 1u << 20}) {
      SCOPED_TRACE(std::to_string(rows.size()) + " rows, " + std::to_string(shard_bytes));
      const TempDir dir;
      const auto base = put(dir.path(), 10, 100);
      DeltaSample sample(12, base, rows);
      put_delta(dir.path(), sample, shard_bytes);
      const auto loaded = load_newest(dir.path());
      ASSERT_TRUE(loaded.ok()) << loaded.error().text();
      EXPECT_EQ(loaded->step, 12);
      sample.expect(*loaded);
      const auto infos = list(dir.path(), true);
      EXPECT_EQ((*infos)[1].base, base);
      EXPECT_TRUE((*infos)[1].complete) << (*infos)[1].why;
      EXPECT_FALSE((*infos)[0].base.has_value());
    }
  }
}

TEST(Describe, TellsWhatIsInsideWithoutReadingTensors) {
  const TempDir dir;
  const auto base = put(dir.path(), 10, 100);
  DeltaSample sample(12, base, {3, 30});
  put_delta(dir.path(), sample);
  const auto full = describe(dir / "step_000000000010");
  ASSERT_TRUE(full.ok()) << full.error().text();
  EXPECT_EQ(full->id, base);
  EXPECT_EQ(full->files.size(), 4U + 9U);
  EXPECT_EQ(full->table_rows, 33);
  EXPECT_EQ(full->held_rows, 33);
  EXPECT_EQ(full->tables[1], (TensorInfo{"table.rows", Dtype::kF32, {33, 4}}));
  const auto delta = describe(dir / "latest");
  ASSERT_TRUE(delta.ok()) << delta.error().text();
  EXPECT_EQ(delta->base, base);
  EXPECT_EQ(delta->held_rows, 2);
  EXPECT_EQ(delta->table_rows, 33);
  EXPECT_EQ(delta->state, sample.content.state);
  EXPECT_EQ(delta->tables.size(), 3U);
  EXPECT_EQ(delta->model.size(), 3U);
  EXPECT_EQ(delta->optimizer.size(), 2U);
  flip(dir / "step_000000000012/state.json", 3);
  EXPECT_EQ(describe(dir / "latest").error().code(), Code::kCorruptData);
  EXPECT_EQ(describe(dir / "step_000000000099").error().code(), Code::kNotFound);
}

// Puts what it is told where a training run would have it.
class Memory : public Receiver {
 public:
  Result<void> state(const nlohmann::json& s, const fs::path&) override {
    ++states;
    last_state = s;
    return fail_state ? Result<void>(Error(Code::kCorruptData, "mine")) : Result<void>();
  }
  Result<std::optional<std::span<std::byte>>> tensor(Part part, const TensorInfo& info,
                                                     const fs::path&) override {
    names.push_back(info.name);
    if (part != Part::kTables) return std::optional<std::span<std::byte>>();
    if (info.name == fail_tensor) return Error(Code::kCorruptData, "not mine");
    std::size_t bytes = size_of(info.dtype);
    for (const auto n : info.shape) bytes *= static_cast<std::size_t>(n);
    auto& memory = tables[info.name];
    memory.assign(bytes, std::byte{0xEE});
    return std::optional(std::span(memory));
  }
  int states = 0;
  bool fail_state = false;
  std::string fail_tensor;
  nlohmann::json last_state;
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::byte>> tables;
};

TEST(Restore, TellsWhatItReadAndWhatItPassedOver) {
  const TempDir dir;
  const auto base = put(dir.path(), 10);
  DeltaSample sample(12, base, {3, 30});
  put_delta(dir.path(), sample);
  put(dir.path(), 15);
  flip(dir / "step_000000000015/model.safetensors", 500);
  Memory memory;
  const auto restored = restore_newest(dir.path(), memory);
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  EXPECT_EQ(restored->path, dir / "step_000000000012");
  EXPECT_EQ(restored->id.step, 12);
  EXPECT_EQ(restored->base, base);
  EXPECT_THAT(restored->rows, ElementsAre(3, 30));
  ASSERT_EQ(restored->passed_over.size(), 1U);
  EXPECT_EQ(restored->passed_over[0].path, dir / "step_000000000015");
  EXPECT_THAT(restored->passed_over[0].why, HasSubstr("model.safetensors"));
  EXPECT_EQ(memory.states, 2);  // of the broken one too: its own bytes were right
  EXPECT_EQ(memory.last_state, sample.content.state);
  std::uint64_t bytes = 0;
  for (const char* file :
       {"12/MANIFEST.json", "12/state.json", "12/model.safetensors", "12/optimizer.safetensors",
        "12/tables.safetensors", "10/MANIFEST.json", "10/tables.safetensors"}) {
    bytes += fs::file_size(dir / ("step_0000000000" + std::string(file)));
  }
  EXPECT_EQ(restored->bytes, bytes);
}

TEST(Restore, TheReceiversErrorsAreItsOwnAndBreakNothing) {
  const TempDir dir;
  put(dir.path(), 1);
  put(dir.path(), 2);
  Memory memory;
  memory.fail_tensor = "table.ids";
  auto failed = restore_newest(dir.path(), memory);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().text(), "not mine");
  memory.fail_tensor.clear();
  memory.fail_state = true;
  failed = restore_newest(dir.path(), memory);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().text(), "mine");
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000001", "step_000000000002"));
}

// A damaged name or shape makes the receiver refuse, but the damage is what is wrong.
TEST(Restore, ADamagedHeaderIsNoErrorOfTheReceiver) {
  const TempDir dir;
  put(dir.path(), 1);
  put(dir.path(), 2);
  const auto file = dir / "step_000000000002/tables.safetensors";
  auto bytes = slurp(file);
  bytes.replace(bytes.find("table.ids"), 9, "table.ide");
  spill(file, bytes);
  Memory memory;
  memory.fail_tensor = "table.ide";
  const auto restored = restore_newest(dir.path(), memory);
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  EXPECT_EQ(restored->id.step, 1);
  EXPECT_TRUE(fs::exists(dir / "step_000000000002.corrupt-1"));
}

class WithoutBase : public ::testing::Test {
 protected:
  WithoutBase() : base_(put(dir_.path(), 10)), first_(12, base_, {1}), second_(14, base_, {1, 2}) {
    put(dir_.path(), 5);
    put_delta(dir_.path(), first_);
    put_delta(dir_.path(), second_);
  }
  fs::path at(std::int64_t step) const { return dir_.path() / step_name(step); }

  TempDir dir_;
  Base base_;
  DeltaSample first_, second_;
};

TEST_F(WithoutBase, DifferencesArePassedOverAndStay) {
  fs::rename(at(10), dir_ / "away");
  Memory memory;
  const auto restored = restore_newest(dir_.path(), memory);
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  EXPECT_EQ(restored->id.step, 5);
  ASSERT_EQ(restored->passed_over.size(), 2U);
  EXPECT_EQ(restored->passed_over[0].path, at(14));
  EXPECT_THAT(restored->passed_over[0].why, HasSubstr("there is no checkpoint " + at(10).string()));
  EXPECT_THAT(names_in(dir_.path()), ElementsAre("away", "latest", "step_000000000005",
                                                 "step_000000000012", "step_000000000014"));
  const auto infos = list(dir_.path(), false);
  EXPECT_FALSE((*infos)[2].complete);
  EXPECT_EQ((*infos)[2].base, base_);
  EXPECT_THAT((*infos)[2].why, HasSubstr("its base, step_000000000010, cannot be used"));
  EXPECT_EQ(load(at(14)).error().code(), Code::kCorruptData);
  EXPECT_FALSE(verify(at(14))->complete);
  // The base comes back, from a backup perhaps.
  fs::rename(dir_ / "away", at(10));
  const auto loaded = load_newest(dir_.path());
  EXPECT_EQ(loaded->step, 14);
  second_.expect(*loaded);
}

TEST_F(WithoutBase, ABrokenBaseAloneIsSetAside) {
  flip(at(10) / "tables.safetensors", 600);
  EXPECT_TRUE((*list(dir_.path(), false))[3].complete);
  EXPECT_FALSE((*list(dir_.path(), true))[3].complete);
  Memory memory;
  const auto restored = restore_newest(dir_.path(), memory);
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  EXPECT_EQ(restored->id.step, 5);
  EXPECT_EQ(restored->passed_over.size(), 3U);
  EXPECT_THAT(names_in(dir_.path()),
              ElementsAre("latest", "step_000000000005", "step_000000000010.corrupt-1",
                          "step_000000000012", "step_000000000014"));
  // When training comes to that step again the difference makes room.
  put(dir_.path(), 12);
  EXPECT_TRUE(fs::exists(dir_ / "step_000000000012.corrupt-1"));
  EXPECT_EQ(load_newest(dir_.path())->step, 12);
}

TEST_F(WithoutBase, WhatOnlyTheBaseNeedsMayBeBroken) {
  flip(at(10) / "model.safetensors", 600);
  second_.expect(*load_newest(dir_.path()));
}

TEST_F(WithoutBase, AnotherCheckpointOfThatStepIsNoBase) {
  fs::remove_all(at(10));
  Sample other(11);
  other.content.step = 10;
  ASSERT_TRUE(publish(dir_.path(), other.content).ok());
  EXPECT_THAT((*list(dir_.path(), false))[2].why, HasSubstr("is another checkpoint of step 10"));
  EXPECT_EQ(load_newest(dir_.path())->step, 10);
  EXPECT_TRUE(fs::exists(at(14)));
}

TEST_F(WithoutBase, NothingElseIsLeft) {
  fs::remove_all(at(10));
  fs::remove_all(at(5));
  const auto loaded = load_newest(dir_.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), Code::kCorruptData);
  EXPECT_THAT(loaded.error().text(), HasSubstr("step_000000000014"));
  EXPECT_THAT(loaded.error().text(), HasSubstr("step_000000000012"));
}

TEST(Difference, IsNotWrittenToWhatIsNoBase) {
  const TempDir dir;
  const auto base = put(dir.path(), 10);
  DeltaSample good(12, base, {1});
  put_delta(dir.path(), good);
  const auto refused = [&](DeltaSample& sample, Code code, const std::string& says) {
    const auto published = publish(dir.path(), sample.content);
    ASSERT_FALSE(published.ok());
    EXPECT_EQ(published.error().code(), code) << published.error().text();
    EXPECT_THAT(published.error().text(), HasSubstr(says));
  };
  DeltaSample missing(20, {9, 1}, {1});
  refused(missing, Code::kNotFound, "step_000000000009");
  DeltaSample other(20, {10, base.manifest_xxh3 + 1}, {1});
  refused(other, Code::kCorruptData, "another checkpoint");
  DeltaSample later(8, base, {1});
  refused(later, Code::kInvalidArgument, "not before step 8");
  DeltaSample itself(10, base, {1});
  refused(itself, Code::kInvalidArgument, "not overwritten");
  Memory memory;
  DeltaSample chain(20, restore(dir / "step_000000000012", memory)->id, {1});
  refused(chain, Code::kCorruptData, "itself a difference");
  DeltaSample rows(20, base, {1});
  rows.content.delta->table_rows = 34;
  refused(rows, Code::kInvalidArgument, "not those of the base");
  DeltaSample less(20, base, {1});
  less.content.tables.pop_back();
  refused(less, Code::kInvalidArgument, "not those of the base");
  for (const auto& bad : std::vector<std::vector<std::int64_t>>{{-1}, {33}, {2, 2}, {3, 2}}) {
    std::vector<std::int64_t> some(bad.size(), 0);
    DeltaSample sample(20, base, some);
    sample.content.delta->rows = bad;
    refused(sample, Code::kInvalidArgument, "ascend");
  }
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000010", "step_000000000012"));
}

TEST(Retention, BasesOfKeptDifferencesStay) {
  const TempDir dir;
  const auto base = put(dir.path(), 10);
  put(dir.path(), 20);
  DeltaSample delta(30, base, {4});
  put_delta(dir.path(), delta);
  auto planned = plan_prune(dir.path(), {.keep_last = 1});
  ASSERT_EQ(planned->removed.size(), 1U);
  EXPECT_EQ(planned->removed[0].path, dir / "step_000000000020");
  ASSERT_EQ(planned->kept.size(), 2U);
  EXPECT_EQ(planned->kept[0].why, "base of step 30");
  EXPECT_EQ(planned->kept[1].why, "keep_last = 1");
  planned = plan_prune(dir.path(), {.keep_last = 1}, {{20, "because"}});
  EXPECT_TRUE(planned->removed.empty());
  EXPECT_EQ(planned->kept[1].why, "because");
  const auto pruned = prune(dir.path(), {.keep_last = 1});
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(pruned->checkpoints, 1);
  delta.expect(*load_newest(dir.path()));
  put(dir.path(), 40);
  ASSERT_TRUE(prune(dir.path(), {.keep_last = 1}).ok());
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step_000000000040"));
}

TEST(Retention, TheFirstAtOrAfterEachMultipleStays) {
  const TempDir dir;
  for (const std::int64_t step : {3, 9, 10, 12, 19, 27, 28, 50, 55, 60}) put(dir.path(), step);
  spill(dir / "step_000000000050/state.json", "no longer of its size");
  std::uint64_t bytes = 0;
  for (const int step : {3, 9, 12, 19, 28}) {
    for (const auto& f : fs::directory_iterator(dir / step_name(step))) bytes += f.file_size();
  }
  const auto pruned = prune(dir.path(), {.keep_last = 1, .keep_every = 10});
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(pruned->checkpoints, 5);
  EXPECT_EQ(pruned->leftovers, 0);
  EXPECT_EQ(pruned->bytes, bytes);
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000010", "step_000000000027", "step_000000000050",
                          "step_000000000055", "step_000000000060"));
  // Whatever comes later, these stay.
  for (const std::int64_t step : {61, 62}) put(dir.path(), step);
  ASSERT_TRUE(prune(dir.path(), {.keep_last = 1, .keep_every = 10}).ok());
  EXPECT_THAT(names_in(dir.path()),
              ElementsAre("latest", "step_000000000010", "step_000000000027", "step_000000000050",
                          "step_000000000055", "step_000000000060", "step_000000000062"));
}

TEST(Retention, LeftoversAreCountedAndTheirSpaceFreed) {
  const TempDir dir;
  put(dir.path(), 1);
  fs::create_directories(dir / ".step_000000000009.tmp-1-0");
  spill(dir / ".step_000000000009.tmp-1-0/model.safetensors", std::string(100, 'x'));
  fs::create_symlink("step_000000000001", dir / ".latest.tmp-1-0");
  const auto cleaned = clean_leftovers(dir.path());
  ASSERT_TRUE(cleaned.ok());
  EXPECT_EQ(cleaned->leftovers, 2);
  EXPECT_EQ(cleaned->bytes, 100U);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step_000000000001"));
  EXPECT_EQ(clean_leftovers(dir.path())->leftovers, 0);
  EXPECT_EQ(clean_leftovers(dir / "none")->leftovers, 0);
}

}  // namespace
}  // namespace paceline::checkpoint
