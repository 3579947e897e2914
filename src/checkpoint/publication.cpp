#include "checkpoint/publication.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/restoration.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/tables.hpp"
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

// After this call `target` may be created: it is free, or what cannot be used was set aside.
Result<void> make_room(FileOps& ops, const fs::path& target) {
  std::error_code ignored;
  const auto type = fs::symlink_status(target, ignored).type();
  if (type == fs::file_type::not_found) return {};
  if (type != fs::file_type::directory) return set_aside(ops, target, "it is no directory");
  Discard nowhere;
  Restoration existing(ops, nowhere);
  const auto read = existing.read(target);
  if (read.ok()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} is a complete checkpoint and is not overwritten", target.string()));
  }
  const auto code = read.error().code();
  if (code == Code::kNotFound && existing.blame() != Blame::kBase) return {};
  if (code != Code::kCorruptData && code != Code::kNotFound) return Error(read.error());
  return set_aside(ops, target, read.error().text());
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

Result<std::string> state_text(const nlohmann::json& state) {
  std::string text;
  try {
    text = state.dump(2) + "\n";
  } catch (const nlohmann::json::exception& e) {
    return Error(Code::kInvalidArgument, fmt::format("the state cannot be written: {}", e.what()));
  }
  if (text.size() > kMaxStateBytes) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the state has {} bytes as JSON; at most {} are read back",
                             text.size(), kMaxStateBytes));
  }
  return text;
}

}  // namespace

Publication::Publication(FileOps& ops, fs::path dir, std::int64_t step, fs::path hidden)
    : ops_(&ops), dir_(std::move(dir)), hidden_(std::move(hidden)) {
  manifest_.step = step;
}

Publication::Publication(Publication&& other) noexcept
    : ops_(other.ops_),
      dir_(std::move(other.dir_)),
      hidden_(std::exchange(other.hidden_, {})),
      manifest_(std::move(other.manifest_)) {}

Publication::~Publication() {
  if (hidden_.empty()) return;
  if (const auto removed = ops_->remove_all(hidden_); !removed.ok()) {
    log::warning(fmt::format("left behind until the next prune: {}", removed.error().text()));
  }
}

std::string Publication::what() const {
  return fmt::format("writing checkpoint {}", (dir_ / step_name(manifest_.step)).string());
}

Result<Publication> Publication::begin(FileOps& ops, const fs::path& dir, std::int64_t step) {
  if (step < 0 || step >= kStepLimit) {
    return Error(Code::kInvalidArgument,
                 fmt::format("step {} is not in 0 .. {}", step, kStepLimit - 1));
  }
  const auto name = step_name(step);
  PL_TRY_VOID(make_directories(ops, dir));
  PL_TRY_VOID(make_room(ops, dir / name));
  const auto hidden = hidden_path(dir, name, "tmp");
  PL_TRY_VOID(ops.make_directory(hidden));
  return Publication(ops, dir, step, hidden);
}

Result<void> Publication::write_tables(std::span<const TensorView> tables, const TableDelta* delta,
                                       std::uint64_t shard_bytes) {
  if (delta != nullptr) {
    PL_TRY_VOID(check_base(tables, *delta).context(what()));
    manifest_.base = delta->base;
  }
  PL_TRY(auto records,
         write_table_files(*ops_, hidden_, tables, delta, shard_bytes).context(what()));
  std::move(records.begin(), records.end(), std::back_inserter(manifest_.files));
  return {};
}

// A difference that could never be read is not written.
Result<void> Publication::check_base(std::span<const TensorView> tables,
                                     const TableDelta& delta) const {
  const auto base_path = dir_ / step_name(delta.base.step);
  if (delta.base.step >= manifest_.step) {
    return Error(Code::kInvalidArgument,
                 fmt::format("base {} is not before step {}", base_path.string(), manifest_.step));
  }
  PL_TRY(const auto base, read_base(*ops_, dir_ / step_name(manifest_.step), delta.base));
  PL_TRY(const auto first, open_table_file(*ops_, base_path, base, base.table_files().front()));
  PL_TRY(const auto wanted, table_tensors(first, base));
  bool same = wanted.size() == tables.size() && first.range.rows == delta.table_rows;
  for (const auto& w : wanted) {
    same = same && std::any_of(tables.begin(), tables.end(), [&](const TensorView& t) {
             auto whole = t.shape;
             if (!whole.empty()) whole[0] = delta.table_rows;
             return w.info == TensorInfo{t.name, t.dtype, whole};
           });
  }
  if (same) return {};
  return Error(Code::kInvalidArgument,
               fmt::format("the tables are not those of the base {}", base_path.string()));
}

Result<void> Publication::write_dense(std::span<const TensorView> model,
                                      std::span<const TensorView> optimizer) {
  PL_TRY(auto first, write_tensors(*ops_, hidden_ / kModelName, model).context(what()));
  manifest_.files.push_back(std::move(first));
  PL_TRY(auto second, write_tensors(*ops_, hidden_ / kOptimizerName, optimizer).context(what()));
  manifest_.files.push_back(std::move(second));
  return {};
}

Result<void> Publication::write_rest(const std::string& state) {
  PL_TRY(auto record, write_text(*ops_, hidden_ / kStateName, state));
  manifest_.files.push_back(std::move(record));
  PL_TRY_VOID(write_text(*ops_, hidden_ / kManifestName, manifest_text(manifest_)));
  return ops_->sync_directory(hidden_);
}

Result<Published> Publication::finish(const nlohmann::json& state) {
  PL_CHECK(!hidden_.empty() && manifest_.files.size() >= 3, "tables and dense were written");
  PL_TRY(const auto text, state_text(state).context(what()));
  PL_TRY_VOID(write_rest(text).context(what()));
  const auto name = step_name(manifest_.step);
  const auto target = dir_ / name;
  PL_TRY_VOID(ops_->rename_new(hidden_, target).context(what()));
  if (auto synced = ops_->sync_directory(dir_); !synced.ok()) {
    // A rename that may not last is taken back.
    if (!ops_->rename_new(target, hidden_).ok()) hidden_.clear();
    return Error(std::move(synced.error()).context(what()));
  }
  hidden_.clear();
  point_latest_at(*ops_, dir_, name);
  return Published{target, manifest_.bytes_of_all(), manifest_.id()};
}

Result<Published> publish_with(FileOps& ops, const fs::path& dir, const Content& content) {
  PL_TRY(auto publication, Publication::begin(ops, dir, content.step));
  const auto* delta = content.delta ? &*content.delta : nullptr;
  PL_TRY_VOID(publication.write_tables(content.tables, delta, content.shard_bytes));
  PL_TRY_VOID(publication.write_dense(content.model, content.optimizer));
  return publication.finish(content.state);
}

Result<Published> publish(const fs::path& dir, const Content& content) {
  return publish_with(posix_file_ops(), dir, content);
}

}  // namespace paceline::checkpoint
