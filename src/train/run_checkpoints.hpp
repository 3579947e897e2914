// The checkpoints of runs as people name them and look at them. Nothing is changed. Blocking.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "train/run_state.hpp"

namespace paceline::train {

// The directory of the checkpoint that `name` means: a run (directory or config file), of which
// the newest complete one; RUN@STEP; or a checkpoint's own directory, `latest` included.
// kInvalidArgument or kNotFound when it means none, saying which ones there are.
Result<std::filesystem::path> find_checkpoint(const std::string& name);

struct SeenCheckpoint {
  checkpoint::Info info;
  std::optional<RunState> run;  // absent when it is not complete, or holds something else
};

struct SeenRun {
  std::filesystem::path dir;                     // of the checkpoints
  std::vector<SeenCheckpoint> checkpoints;       // by step
  std::vector<std::filesystem::path> set_aside;  // found broken before
  std::optional<std::int64_t> latest;            // what the link names
};
// All checkpoints of a run, or the one that `name` means when that is one alone. `deep` reads and
// hashes every byte.
Result<SeenRun> see_run(const std::string& name, bool deep);

// XXH3 of the keys that a resume may not change (KeyClass::kFixed) and their values: equal for the
// same model, data order and seeds.
std::uint64_t config_fingerprint(const std::vector<std::pair<std::string, std::string>>& config);

}  // namespace paceline::train
