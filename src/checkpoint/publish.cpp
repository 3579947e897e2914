// Writing, publishing and pruning checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/log.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// Creates what is missing of `dir`, each level synced into its parent.
Result<void> make_directories(FileOps& ops, const fs::path& dir) {
  std::error_code ignored;
  if (dir.empty() || fs::is_directory(dir, ignored)) return {};
  const auto parent = dir.has_filename() ? dir.parent_path() : dir.parent_path().parent_path();
  PL_TRY_VOID(make_directories(ops, parent));
  PL_TRY_VOID(ops.make_directory(dir));
  return ops.sync_directory(parent.empty() ? fs::path(".") : parent);
}

Result<FileRecord> write_text(FileOps& ops, const fs::path& path, const std::string& text) {
  PL_TRY(auto file, OutputFile::create(ops, path));
  PL_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

Result<void> write_files(FileOps& ops, const fs::path& hidden, const Content& content) {
  std::string state;
  try {
    state = content.state.dump(2) + "\n";
  } catch (const nlohmann::json::exception& e) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the state of step {} cannot be written: {}", content.step, e.what()));
  }
  Manifest manifest;
  manifest.step = content.step;
  const auto add = [&](Result<FileRecord> written) -> Result<void> {
    if (!written) return Error(std::move(written.error()));
    manifest.files.push_back(std::move(*written));
    return {};
  };
  PL_TRY_VOID(add(write_tensors(ops, hidden / kModelName, content.model)));
  PL_TRY_VOID(add(write_tensors(ops, hidden / kOptimizerName, content.optimizer)));
  PL_TRY_VOID(add(write_tensors(ops, hidden / kTablesName, content.tables)));
  PL_TRY_VOID(add(write_text(ops, hidden / kStateName, state)));
  PL_TRY_VOID(write_text(ops, hidden / kManifestName, manifest_text(manifest)));
  return ops.sync_directory(hidden);
}

// After this call `target` may be created: it is free, or a broken checkpoint was set aside.
Result<void> make_room(FileOps& ops, const fs::path& target) {
  auto existing = check(target, true);
  if (existing.ok()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} is a complete checkpoint and is not overwritten", target.string()));
  }
  const auto code = existing.error().code();
  if (code == Code::kNotFound) return {};
  if (code != Code::kCorruptData) return Error(std::move(existing.error()));
  return set_aside(ops, target, existing.error().text());
}

// `latest` is for people: a checkpoint counts without it, so that a failure is a warning.
void point_latest_at(FileOps& ops, const fs::path& dir, const std::string& name) {
  const auto link = hidden_path(dir, kLatestName, "tmp");
  auto done = ops.symlink(name, link);
  if (done.ok()) {
    done = ops.rename_over(link, dir / kLatestName);
    if (!done.ok()) discard(ops.remove_all(link));
  }
  if (done.ok()) done = ops.sync_directory(dir);
  if (!done.ok()) {
    log::warning(fmt::format("{} is published, but {} was not updated: {}", (dir / name).string(),
                             kLatestName, done.error().text()));
  }
}

}  // namespace

Result<fs::path> publish_with(FileOps& ops, const fs::path& dir, const Content& content) {
  if (content.step < 0 || content.step >= kStepLimit) {
    return Error(Code::kInvalidArgument,
                 fmt::format("step {} is not in 0 .. {}", content.step, kStepLimit - 1));
  }
  const auto name = step_name(content.step);
  const auto target = dir / name;
  PL_TRY_VOID(make_directories(ops, dir));
  PL_TRY_VOID(make_room(ops, target));
  const auto hidden = hidden_path(dir, name, "tmp");
  PL_TRY_VOID(ops.make_directory(hidden));
  auto written = write_files(ops, hidden, content);
  if (written.ok()) written = ops.rename_new(hidden, target);
  if (written.ok()) {
    written = ops.sync_directory(dir);
    // A rename that may not last is taken back.
    if (!written.ok()) discard(ops.rename_new(target, hidden));
  }
  if (!written.ok()) {
    if (const auto removed = ops.remove_all(hidden); !removed.ok()) {
      log::warning(fmt::format("left behind until the next prune: {}", removed.error().text()));
    }
    return Error(std::move(written.error()))
        .context(fmt::format("writing checkpoint {}", target.string()));
  }
  point_latest_at(ops, dir, name);
  return target;
}

Result<fs::path> publish(const fs::path& dir, const Content& content) {
  return publish_with(posix_file_ops(), dir, content);
}

Result<void> prune_with(FileOps& ops, const fs::path& dir, int keep_last) {
  PL_CHECK(keep_last >= 1, "at least one checkpoint is kept");
  PL_TRY(const auto infos, list(dir, false));
  std::vector<fs::path> complete;
  for (const auto& info : infos) {
    if (info.complete) complete.push_back(info.path);
  }
  const auto kept = std::min(complete.size(), static_cast<std::size_t>(keep_last));
  complete.resize(complete.size() - kept);
  // Hidden by a rename first, so that a kill leaves no half of a published checkpoint.
  for (const auto& path : complete) {
    PL_TRY_VOID(ops.rename_new(path, hidden_path(dir, path.filename().string(), "old")));
  }
  std::vector<fs::path> leftovers;
  std::error_code ec;
  fs::directory_iterator it(dir, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    if (is_leftover(it->path().filename().string())) leftovers.push_back(it->path());
  }
  if (ec && ec != std::errc::no_such_file_or_directory) {
    return io_error("list directory", dir, ec.value());
  }
  if (leftovers.empty()) return {};
  if (!complete.empty()) PL_TRY_VOID(ops.sync_directory(dir));
  for (const auto& path : leftovers) PL_TRY_VOID(ops.remove_all(path));
  return ops.sync_directory(dir);
}

Result<void> prune(const fs::path& dir, int keep_last) {
  return prune_with(posix_file_ops(), dir, keep_last);
}

}  // namespace paceline::checkpoint
