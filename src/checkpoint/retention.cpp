// Which checkpoints stay, and the removal of the others.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

std::set<std::int64_t> kept_steps(const std::vector<Info>& complete, const Retention& retention) {
  std::set<std::int64_t> kept;
  const auto last = std::min(complete.size(), static_cast<std::size_t>(retention.keep_last));
  for (std::size_t i = complete.size() - last; i < complete.size(); ++i) {
    kept.insert(complete[i].step);
  }
  std::int64_t bucket = 0;
  for (const auto& info : complete) {
    if (retention.keep_every <= 0 || info.step / retention.keep_every <= bucket) continue;
    bucket = info.step / retention.keep_every;
    kept.insert(info.step);
  }
  for (const auto& info : complete) {
    if (info.base && kept.contains(info.step)) kept.insert(info.base->step);
  }
  return kept;
}

Result<std::vector<Info>> removable(FileOps& ops, const fs::path& dir, const Retention& retention) {
  PL_CHECK(retention.keep_last >= 1, "at least one checkpoint is kept");
  PL_TRY(auto infos, list_with(ops, dir, false));
  std::erase_if(infos, [](const Info& i) { return !i.complete; });
  const auto kept = kept_steps(infos, retention);
  std::erase_if(infos, [&](const Info& i) { return kept.contains(i.step); });
  return infos;
}

Result<Pruned> remove_leftovers(FileOps& ops, const fs::path& dir) {
  Pruned pruned;
  const auto names = ops.list_directory(dir);
  if (!names && names.error().code() == Code::kNotFound) return pruned;
  if (!names) return Error(names.error());
  for (const auto& name : *names) {
    if (!is_leftover(name)) continue;
    const auto bytes = bytes_below(dir / name);
    PL_TRY_VOID(ops.remove_all(dir / name));
    ++pruned.leftovers;
    pruned.bytes += bytes;
  }
  if (pruned.leftovers > 0) PL_TRY_VOID(ops.sync_directory(dir));
  return pruned;
}

}  // namespace

Result<std::vector<fs::path>> prunable(const fs::path& dir, const Retention& retention) {
  PL_TRY(const auto infos, removable(posix_file_ops(), dir, retention));
  std::vector<fs::path> paths;
  for (const auto& info : infos) paths.push_back(info.path);
  return paths;
}

Result<Pruned> prune_with(FileOps& ops, const fs::path& dir, const Retention& retention) {
  PL_TRY(auto infos, removable(ops, dir, retention));
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

Result<Pruned> prune(const fs::path& dir, const Retention& retention) {
  return prune_with(posix_file_ops(), dir, retention);
}

Result<Pruned> clean_leftovers(const fs::path& dir) {
  return remove_leftovers(posix_file_ops(), dir);
}

}  // namespace paceline::checkpoint
