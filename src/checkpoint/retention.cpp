// Which checkpoints stay, and the removal of the others.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// The steps that stay, and why. `complete` is ascending.
KeptToo kept_steps(const std::vector<Info>& complete, const Retention& retention,
                   const KeptToo& too) {
  KeptToo kept;
  const auto last = std::min(complete.size(), static_cast<std::size_t>(retention.keep_last));
  for (std::size_t i = complete.size() - last; i < complete.size(); ++i) {
    kept.emplace(complete[i].step, fmt::format("keep_last = {}", retention.keep_last));
  }
  std::int64_t bucket = 0;
  for (const auto& info : complete) {
    if (retention.keep_every <= 0 || info.step / retention.keep_every <= bucket) continue;
    bucket = info.step / retention.keep_every;
    kept.emplace(info.step, fmt::format("keep_every = {}", retention.keep_every));
  }
  kept.insert(too.begin(), too.end());
  for (const auto& info : complete) {
    if (!info.base || !kept.contains(info.step)) continue;
    kept.emplace(info.base->step, fmt::format("base of step {}", info.step));
  }
  return kept;
}

Result<PrunePlan> plan(FileOps& ops, const fs::path& dir, const Retention& retention,
                       const KeptToo& too) {
  PL_CHECK(retention.keep_last >= 1, "at least one checkpoint is kept");
  PL_TRY(auto infos, list_with(ops, dir, false));
  std::vector<Info> complete;
  std::copy_if(infos.begin(), infos.end(), std::back_inserter(complete),
               [](const Info& i) { return i.complete; });
  const auto kept = kept_steps(complete, retention, too);
  PrunePlan plan;
  for (auto& info : infos) {
    const auto it = kept.find(info.step);
    if (!info.complete) {
      std::string why = "not complete: " + info.why;
      plan.kept.push_back({std::move(info), std::move(why)});
    } else if (it != kept.end()) {
      plan.kept.push_back({std::move(info), it->second});
    } else {
      plan.removed.push_back(std::move(info));
    }
  }
  return plan;
}

Result<std::vector<fs::path>> leftovers_of(FileOps& ops, const fs::path& dir) {
  std::vector<fs::path> paths;
  const auto names = ops.list_directory(dir);
  if (!names && names.error().code() == Code::kNotFound) return paths;
  if (!names) return Error(names.error());
  for (const auto& name : *names) {
    if (is_leftover(name)) paths.push_back(dir / name);
  }
  return paths;
}

Result<Pruned> remove_leftovers(FileOps& ops, const fs::path& dir) {
  Pruned pruned;
  PL_TRY(const auto leftovers, leftovers_of(ops, dir));
  for (const auto& path : leftovers) {
    const auto bytes = bytes_below(path);
    PL_TRY_VOID(ops.remove_all(path));
    ++pruned.leftovers;
    pruned.bytes += bytes;
  }
  if (pruned.leftovers > 0) PL_TRY_VOID(ops.sync_directory(dir));
  return pruned;
}

}  // namespace

Result<PrunePlan> plan_prune(const fs::path& dir, const Retention& retention, const KeptToo& too) {
  PL_TRY(auto planned, plan(posix_file_ops(), dir, retention, too));
  PL_TRY(planned.leftovers, leftovers_of(posix_file_ops(), dir));
  for (const auto& info : planned.removed) planned.bytes += info.bytes;
  for (const auto& path : planned.leftovers) planned.bytes += bytes_below(path);
  return planned;
}

Result<Pruned> prune_with(FileOps& ops, const fs::path& dir, const Retention& retention,
                          const KeptToo& too) {
  PL_TRY(auto planned, plan(ops, dir, retention, too));
  auto& infos = planned.removed;
  // Hidden by a rename first, so that a kill leaves no half of a published checkpoint; newest
  // first, so that it leaves no difference without its base.
  std::reverse(infos.begin(), infos.end());
  for (const auto& info : infos) {
    PL_TRY_VOID(ops.rename_new(info.path, hidden_path(dir, step_name(info.step), "old")));
  }
  if (!infos.empty()) PL_TRY_VOID(ops.sync_directory(dir));
  PL_TRY(auto pruned, remove_leftovers(ops, dir));
  pruned.checkpoints = static_cast<int>(infos.size());
  pruned.leftovers -= pruned.checkpoints;
  return pruned;
}

Result<Pruned> prune(const fs::path& dir, const Retention& retention, const KeptToo& too) {
  return prune_with(posix_file_ops(), dir, retention, too);
}

Result<Pruned> clean_leftovers(const fs::path& dir) {
  return remove_leftovers(posix_file_ops(), dir);
}

}  // namespace paceline::checkpoint
