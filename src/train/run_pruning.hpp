// Removal of a run's old checkpoints because somebody asks, by the rules of its config or others.
// Blocking.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"

namespace paceline::train {

struct PruneOptions {
  std::optional<int> keep_last;            // >= 1; absent: checkpoint.keep_last of the run
  std::optional<std::int64_t> keep_every;  // >= 0; absent: checkpoint.keep_every of the run
  bool dry_run = false;                    // changes nothing and takes no lock
};

struct PrunedRun {
  std::filesystem::path dir;  // of the checkpoints
  checkpoint::Retention retention;
  checkpoint::PrunePlan plan;  // what was done, or would be
  std::uint64_t bytes = 0;     // freed, or about to be
};

// `run` is a run directory or a config file. Beside the retention these stay: what `latest` names;
// the newest whose last steps were finite; bases; and what is broken or was set aside. The newest
// is read first, every byte: while it is broken nothing is removed (kCorruptData).
// kInvalidArgument or kNotFound when there is no such run, kUnavailable while another process
// trains in it.
Result<PrunedRun> prune_run(const std::string& run, const PruneOptions& options);

}  // namespace paceline::train
