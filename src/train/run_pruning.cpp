#include "train/run_pruning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "train/loaded_run.hpp"
#include "train/run_directory.hpp"
#include "train/run_state.hpp"
#include "train/train_config.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

// As the trainer takes it; creates neither directory.
Result<RunDirectory> lock(const fs::path& run, const fs::path& checkpoints) {
  std::error_code failed;
  PL_TRY(auto directory, RunDirectory::open(fs::is_directory(run, failed) ? run : checkpoints));
  PL_TRY_VOID(directory.lock_checkpoints(checkpoints));
  return directory;
}

// A training that diverged keeps what was saved before (see Saving): so does this.
std::optional<std::int64_t> newest_finite(const std::vector<checkpoint::Info>& infos) {
  for (auto it = infos.rbegin(); it != infos.rend(); ++it) {
    if (!it->complete) continue;
    const auto described = checkpoint::describe(it->path);
    if (!described) continue;
    const auto state = state_from_json(described->state);
    if (state && state->counters.bad_in_a_row == 0) return it->step;
  }
  return {};
}

Result<checkpoint::KeptToo> kept_too(const fs::path& dir) {
  checkpoint::KeptToo too;
  PL_TRY(const auto infos, checkpoint::list(dir, false));
  if (const auto step = newest_finite(infos)) {
    too.emplace(*step, "the newest whose last steps were finite");
  }
  if (const auto step = checkpoint::latest_step(dir)) too.emplace(*step, "latest");
  return too;
}

// Sizes alone decide what is complete: the bytes that all others are given up for are looked at.
Result<void> verify_newest(const checkpoint::PrunePlan& plan) {
  const auto newest = std::find_if(plan.kept.rbegin(), plan.kept.rend(),
                                   [](const auto& kept) { return kept.info.complete; });
  if (plan.removed.empty() || newest == plan.kept.rend()) return {};
  PL_TRY(const auto seen, checkpoint::verify(newest->info.path));
  if (seen.complete) return {};
  return Error(
      Code::kCorruptData,
      fmt::format("nothing is removed: the newest checkpoint is broken ({}); `paceline checkpoint "
                  "verify` looks at all, starting the run again sets the broken one aside",
                  seen.why));
}

}  // namespace

Result<PrunedRun> prune_run(const std::string& run, const PruneOptions& options) {
  PL_TRY(const auto config, read_config(run, {}));
  const fs::path dir = config.checkpoint.dir;
  std::error_code failed;
  if (!fs::is_directory(dir, failed)) {
    return Error(Code::kNotFound,
                 fmt::format("{} has no checkpoints: {} is no directory", run, dir.string()));
  }
  std::optional<RunDirectory> locked;
  if (!options.dry_run) {
    PL_TRY(auto directory, lock(config.run_dir, dir));
    locked.emplace(std::move(directory));
  }
  PrunedRun pruned;
  pruned.dir = dir;
  pruned.retention.keep_last = options.keep_last.value_or(config.checkpoint.keep_last);
  pruned.retention.keep_every = options.keep_every.value_or(config.checkpoint.keep_every);
  PL_TRY(const auto too, kept_too(dir));
  PL_TRY(pruned.plan, checkpoint::plan_prune(dir, pruned.retention, too));
  PL_TRY_VOID(verify_newest(pruned.plan));
  if (options.dry_run) {
    pruned.bytes = pruned.plan.bytes;
    return pruned;
  }
  PL_TRY(const auto done, checkpoint::prune(dir, pruned.retention, too));
  pruned.bytes = done.bytes;
  return pruned;
}

}  // namespace paceline::train
