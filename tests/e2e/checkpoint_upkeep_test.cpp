// `paceline checkpoint prune` and `export` on the real program.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/checkpoint.hpp"
#include "e2e/checkpoint_runs.hpp"

namespace paceline::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointUpkeep : public CheckpointRuns {};

std::vector<int> steps_in(const nlohmann::json& checkpoints) {
  std::vector<int> steps;
  for (const auto& c : checkpoints) steps.push_back(c.at("step"));
  return steps;
}

TEST_F(CheckpointUpkeep, PruneFollowsTheConfigOrTheFlags) {
  train("many", {"train.max_steps=7", "checkpoint.every_steps=1", "checkpoint.keep_last=6"});
  const std::string many = w->run_dir("many");
  fs::create_directory(many + "/checkpoints/.step_000000000009.tmp-1-1");
  write_text(many + "/checkpoints/.step_000000000009.tmp-1-1/half", "abc");
  const auto before = checkpoints(many);
  ASSERT_EQ(before.size(), 6U);

  const std::vector<std::string> ask = {"checkpoint", "prune",        many, "--keep-last",
                                        "2",          "--keep-every", "3",  "--dry-run"};
  const auto would = json_of(ask);
  EXPECT_EQ(would.at("dry_run"), true);
  EXPECT_EQ(steps_in(would.at("removed")), (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(steps_in(would.at("kept")), (std::vector<int>{3, 6, 7}));
  EXPECT_EQ(would.at("kept")[0].at("kept_because"), "keep_every = 3");
  EXPECT_EQ(would.at("kept")[1].at("kept_because"), "keep_last = 2");
  EXPECT_EQ(would.at("leftovers").size(), 1U);
  EXPECT_EQ(checkpoints(many), before);
  EXPECT_TRUE(fs::exists(many + "/checkpoints/.step_000000000009.tmp-1-1"));
  EXPECT_THAT(run(ask).out, AllOf(HasSubstr("would remove step 4"), HasSubstr("kept step 3: ")));

  // The run's own values keep all six; what a dead save left goes.
  const auto own = json_of({"checkpoint", "prune", many});
  EXPECT_TRUE(own.at("removed").empty());
  EXPECT_EQ(own.at("keep_last"), 6);
  EXPECT_EQ(own.at("bytes"), 3);
  EXPECT_FALSE(fs::exists(many + "/checkpoints/.step_000000000009.tmp-1-1"));

  const auto done = json_of({"checkpoint", "prune", many, "--keep-last", "2", "--keep-every", "3"});
  EXPECT_EQ(steps_in(done.at("removed")), (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(done.at("bytes").get<std::uint64_t>() + 3, would.at("bytes").get<std::uint64_t>());
  EXPECT_EQ(checkpoints(many).size(), 3U);
  EXPECT_EQ(steps_in(json_of({"checkpoint", "verify", many}).at("checkpoints")),
            (std::vector<int>{3, 6, 7}));
  train("many", {"train.max_steps=8"});
}

TEST_F(CheckpointUpkeep, PruneKeepsWhatOthersNeed) {
  // Steps 2 and 5, the last of its start, are full; 4 and 7 are differences to the one before.
  const std::string child = copy_of("child");
  const auto pruned = json_of({"checkpoint", "prune", child, "--keep-last", "1"});
  EXPECT_EQ(steps_in(pruned.at("kept")), (std::vector<int>{5, 7}));
  EXPECT_EQ(pruned.at("kept")[0].at("kept_because"), "base of step 7");
  EXPECT_EQ(json_of({"checkpoint", "diff", child, w->run_dir("child")}).at("equal"), true);

  const std::string parent = copy_of("parent");
  fs::remove(parent + "/checkpoints/latest");
  fs::create_symlink("step_000000000004", parent + "/checkpoints/latest");
  const auto latest = json_of({"checkpoint", "prune", parent, "--keep-last", "1"});
  EXPECT_EQ(steps_in(latest.at("removed")), (std::vector<int>{8}));
  EXPECT_EQ(latest.at("kept")[0].at("kept_because"), "latest");
}

// A run that diverges leaves its newest checkpoints without a use.
TEST_F(CheckpointUpkeep, PruneKeepsTheNewestFinite) {
  const std::string copy = copy_of("parent");
  auto loaded = checkpoint::load(step_dir(copy, 12));
  ASSERT_TRUE(loaded.ok());
  checkpoint::Content content;
  content.step = 13;
  content.state = loaded->state;
  content.state["step"] = 13;
  content.state["bad_in_a_row"] = 2;
  for (auto& t : loaded->tables) {
    content.tables.push_back({t.name, t.dtype, t.shape, {t.bytes.data(), t.bytes.size_bytes()}});
  }
  ASSERT_TRUE(checkpoint::publish(copy + "/checkpoints", content).ok());
  const auto pruned = json_of({"checkpoint", "prune", copy, "--keep-last", "1"});
  EXPECT_EQ(steps_in(pruned.at("removed")), (std::vector<int>{4, 8}));
  EXPECT_EQ(pruned.at("kept")[0].at("kept_because"), "the newest whose last steps were finite");
}

TEST_F(CheckpointUpkeep, PruneGivesUpNothingForABrokenOne) {
  const std::string copy = copy_of("parent");
  const std::string file = step_dir(copy, 12) + "/tables.safetensors";
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(file, bytes);
  for (const bool dry : {true, false}) {
    std::vector<std::string> arguments = {"checkpoint", "prune", copy, "--keep-last", "1"};
    if (dry) arguments.emplace_back("--dry-run");
    expect_refused(arguments, 1, "nothing is removed: the newest checkpoint is broken");
  }
  EXPECT_EQ(checkpoints(copy).size(), 3U);
  // One whose size is wrong is no newest; it stays for a look.
  fs::resize_file(step_dir(copy, 12) + "/MANIFEST.json", 40);
  const auto pruned = json_of({"checkpoint", "prune", copy, "--keep-last", "1"});
  EXPECT_EQ(steps_in(pruned.at("removed")), (std::vector<int>{4}));
  EXPECT_THAT(pruned.at("kept")[1].at("kept_because").get<std::string>(),
              HasSubstr("not complete: "));
}

TEST_F(CheckpointUpkeep, PruneWaitsForNoTrainer) {
  const std::string dir = w->run_dir("busy");
  Process process(w->train(
      "busy", {"train.epochs=1000000", "checkpoint.every_steps=5", "checkpoint.keep_last=3"}));
  ASSERT_TRUE(wait_until(
      process, [&] { return fs::exists(dir + "/checkpoints") && checkpoints(dir).size() >= 2; }));
  expect_refused({"checkpoint", "prune", dir, "--keep-last", "1"}, 1,
                 "busy: another process trains or prunes here");
  EXPECT_EQ(json_of({"checkpoint", "prune", dir, "--dry-run"}).at("keep_last"), 3);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 130);
  EXPECT_EQ(json_of({"checkpoint", "prune", dir, "--keep-last", "1"}).at("kept").size(), 1U);
}

TEST_F(CheckpointUpkeep, PruneRefusesBadInput) {
  const std::string parent = w->run_dir("parent");
  for (const char* bad : {"0", "-1", "x", "1.5"}) {
    expect_refused({"checkpoint", "prune", parent, "--keep-last", bad}, 2, "--keep-last");
  }
  expect_refused({"checkpoint", "prune", parent, "--keep-every", "-1"}, 2, "--keep-every");
  expect_refused({"checkpoint", "prune", w->file("nowhere")}, 2, "nowhere");
  expect_refused({"checkpoint", "prune", step_dir(parent, 8)}, 2, "not a run");
  expect_refused({"checkpoint", "prune", parent + "@8"}, 2, "parent@8");
  const std::string copy = copy_of("parent");
  fs::remove_all(copy + "/checkpoints");
  expect_refused({"checkpoint", "prune", copy}, 2, "has no checkpoints");
  EXPECT_FALSE(fs::exists(copy + "/checkpoints"));
  EXPECT_EQ(checkpoints(parent).size(), 3U);
}

// The library of the format reads names, types, values and the config.
constexpr const char* kReadExport = R"(
import sys, tomllib
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file
exported, checkpoint, step = sys.argv[1:]
got = load_file(exported)
want = load_file(checkpoint + "/model.safetensors")
want["table.rows"] = load_file(checkpoint + "/tables.safetensors")["table.rows"]
assert sorted(got) == sorted(want), (sorted(got), sorted(want))
for name, values in want.items():
    assert got[name].dtype == numpy.float32 and got[name].shape == values.shape, name
    assert got[name].tobytes() == values.tobytes(), name
with safe_open(exported, framework="numpy") as f:
    metadata = f.metadata()
assert metadata["format"] == "paceline-export" and metadata["step"] == step, metadata
config = tomllib.loads(metadata["config"])
assert config["model"]["width"] == 16 and config["model"]["layers"] == 2, config
assert got["final_norm.scale"].shape == (config["model"]["width"],)
assert len(config["features"]) > 2 and config["features"][0]["name"], config
)";

TEST_F(CheckpointUpkeep, ExportIsReadByTheLibraryOfTheFormat) {
  const char* chosen = std::getenv("PACELINE_PYTHON");
  const std::string python = chosen != nullptr ? chosen : PACELINE_VENV "/bin/python";
  if (std::system((python + " -c 'import numpy, safetensors' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << python << " has no numpy and safetensors";
  }
  write_text(w->file("read.py"), kReadExport);
  const auto read = [&](const std::string& file, const std::string& checkpoint, int step) {
    const auto command =
        fmt::format("{} {} {} {} {}", python, w->file("read.py"), file, checkpoint, step);
    return std::system(command.c_str());
  };
  const std::string full = w->file("full.safetensors"), merged = w->file("merged.safetensors");
  const auto json = json_of({"checkpoint", "export", w->run_dir("parent") + "@8", "--out", full});
  EXPECT_EQ(json.at("step"), 8);
  EXPECT_EQ(json.at("bytes"), fs::file_size(full));
  EXPECT_EQ(json.at("checkpoint"), step_dir(w->run_dir("parent"), 8));
  EXPECT_EQ(read(full, step_dir(w->run_dir("parent"), 8), 8), 0);

  // Step 4 of the child: a difference, in several files. The same training, saved in full.
  train("in-full", {"train.init_from=" + step_dir(w->run_dir("parent"), 8), "train.max_steps=5",
                    "checkpoint.every_steps=2"});
  const std::string child = w->run_dir("child");
  EXPECT_FALSE(fs::exists(step_dir(child, 4) + "/tables.safetensors")) << "in parts";
  ASSERT_EQ(run({"checkpoint", "export", child + "@4", "-o", merged}).exit_code, 0);
  EXPECT_EQ(read(merged, step_dir(w->run_dir("in-full"), 4), 4), 0);
}

TEST_F(CheckpointUpkeep, ExportIsABeginning) {
  const std::string parent = w->run_dir("parent"), file = w->file("weights.safetensors");
  const Output o = run({"checkpoint", "export", parent, "--out", file});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr(file + ": "), HasSubstr("the weights of " + step_dir(parent, 12))));
  EXPECT_EQ(json_of({"checkpoint", "diff", parent, file, "--weights"}).at("equal"), true);
  EXPECT_EQ(run({"checkpoint", "diff", parent + "@8", file, "--weights"}).exit_code, 1);

  train("begun",
        {"train.init_from=" + file, "train.max_steps=1", "optimizer.lr=0", "optimizer.table_lr=0"});
  EXPECT_EQ(json_of({"checkpoint", "diff", w->run_dir("begun"), file, "--weights"}).at("equal"),
            true);
  const auto begun = json_of({"checkpoint", "show", w->run_dir("begun")});
  const auto shown = json_of({"checkpoint", "show", parent});
  EXPECT_EQ(begun.at("lineage")[0].at("step"), 12);
  EXPECT_EQ(begun.at("lineage")[0].at("run"), shown.at("run_id"));
  expect_refused(w->train("wider", {"train.init_from=" + file, "model.ffn=48"}), 2,
                 "tensor blocks.0.mlp.");
}

TEST_F(CheckpointUpkeep, ExportReplacesOnlyWhenForced) {
  const std::string parent = w->run_dir("parent"), file = w->file("kept.safetensors");
  write_text(file, "mine");
  const std::vector<std::string> plain = {"checkpoint", "export", parent, "--out", file};
  expect_refused(plain, 2, "kept.safetensors is there already; --force replaces it");
  EXPECT_EQ(read_text(file), "mine");

  // What cannot be read replaces nothing.
  const std::string copy = copy_of("parent");
  std::string bytes = read_text(step_dir(copy, 12) + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(step_dir(copy, 12) + "/model.safetensors", bytes);
  expect_refused({"checkpoint", "export", copy, "--out", file, "--force"}, 1,
                 "model.safetensors has hash");
  EXPECT_EQ(read_text(file), "mine");

  auto forced = plain;
  forced.emplace_back("--force");
  EXPECT_EQ(run(forced).exit_code, 0);
  EXPECT_EQ(run({"checkpoint", "diff", parent, file, "--weights"}).exit_code, 0);
  for (const auto& entry : fs::directory_iterator(w->dir())) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
  }
}

TEST_F(CheckpointUpkeep, ExportRefusesBadInput) {
  const std::string parent = w->run_dir("parent"), file = w->file("none.safetensors");
  expect_refused({"checkpoint", "export", parent}, 2, "--out");
  expect_refused({"checkpoint", "export", parent, "--out", w->file("weights.bin")}, 2,
                 "a name that ends in .safetensors");
  expect_refused({"checkpoint", "export", parent, "--out", w->file("no/dir.safetensors")}, 2,
                 "there is no directory");
  expect_refused({"checkpoint", "export", parent, "--force", "--out",
                  step_dir(parent, 8) + "/model.safetensors"},
                 2, "would lie in the checkpoint");
  EXPECT_EQ(run({"checkpoint", "verify", parent}).exit_code, 0);
  expect_refused({"checkpoint", "export", parent + "@9", "--out", file}, 2, "it has: 4, 8, 12");
  expect_refused({"checkpoint", "export", w->file("nowhere"), "--out", file}, 2, "nowhere");
  const std::string child = copy_of("child");
  fs::remove_all(step_dir(child, 5));
  expect_refused({"checkpoint", "export", child + "@7", "--out", file}, 1, "step_000000000005");
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace paceline::e2e
