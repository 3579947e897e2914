#include "checkpoint/layout.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "core/log.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr std::size_t kStepDigits = 12;
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{16} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// A file missing in a checkpoint means a broken checkpoint; a missing directory means none.
Error missing_file(Error error, const fs::path& checkpoint) {
  if (error.code() != Code::kNotFound) return error;
  std::error_code ignored;
  if (!fs::is_directory(checkpoint, ignored)) {
    return Error(Code::kNotFound, fmt::format("there is no checkpoint {}", checkpoint.string()));
  }
  return Error(Code::kCorruptData, error.message());
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("step_{:012}", step); }

std::optional<std::int64_t> parse_step_name(std::string_view name) {
  if (name.size() != kStepPrefix.size() + kStepDigits || !name.starts_with(kStepPrefix)) return {};
  std::int64_t step = 0;
  for (const char c : name.substr(kStepPrefix.size())) {
    if (c < '0' || c > '9') return {};
    step = step * 10 + (c - '0');
  }
  return step;
}

fs::path hidden_path(const fs::path& dir, std::string_view stem, std::string_view kind) {
  static std::atomic<std::uint64_t> next{0};
  // A process number may return after a restart, so leftovers may hold the name.
  for (;;) {
    auto path = dir / fmt::format(".{}.{}-{}-{}", stem, kind, ::getpid(),
                                  next.fetch_add(1, std::memory_order_relaxed));
    if (!is_there(path)) return path;
  }
}

bool is_leftover(std::string_view name) {
  if (!name.starts_with(".")) return false;
  const auto stem = name.substr(1, name.find('.', 1) - 1);
  const auto kind = name.substr(std::min(name.size(), stem.size() + 1));
  return (parse_step_name(stem) || stem == kLatestName) &&
         (kind.starts_with(".tmp-") || kind.starts_with(".old-"));
}

Result<std::vector<std::int64_t>> published_steps(FileOps& ops, const fs::path& dir) {
  std::vector<std::int64_t> steps;
  const auto names = ops.list_directory(dir);
  if (!names && names.error().code() == Code::kNotFound) return steps;
  if (!names) return Error(names.error());
  for (const auto& name : *names) {
    const auto step = parse_step_name(name);
    if (!step) continue;
    std::error_code ignored;
    const auto type = fs::symlink_status(dir / name, ignored).type();
    if (type == fs::file_type::directory || type == fs::file_type::symlink) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<fs::path> resolve(const fs::path& checkpoint) {
  const auto path = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored)) return path;
  const auto target = fs::read_symlink(path, ignored);
  if (path.filename() == kLatestName && parse_step_name(target.string())) {
    return path.parent_path() / target;
  }
  return Error(Code::kInvalidArgument,
               fmt::format("{} is a symbolic link to {}, which is not followed; name the "
                           "checkpoint's own directory",
                           path.string(), target.string()));
}

Result<Manifest> read_manifest(FileOps& ops, const fs::path& checkpoint) {
  std::error_code ignored;
  if (fs::is_symlink(checkpoint, ignored)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} is a symbolic link, which is not followed", checkpoint.string()));
  }
  const auto path = checkpoint / kManifestName;
  auto text = read_text(ops, path, kMaxManifestBytes);
  if (!text) return missing_file(std::move(text.error()), checkpoint);
  PL_TRY(auto manifest, parse_manifest(*text, path));
  const auto name = checkpoint.filename().string();
  if (const auto step = parse_step_name(name); step && *step != manifest.step) {
    return Error(Code::kCorruptData, fmt::format("{} is of step {}, its directory is {}",
                                                 path.string(), manifest.step, name));
  }
  return manifest;
}

Result<InputFile> open_file(FileOps& ops, const fs::path& checkpoint, std::string_view name) {
  auto file = InputFile::open(ops, checkpoint / name);
  if (!file) return missing_file(std::move(file.error()), checkpoint);
  return file;
}

Result<void> check_sizes(FileOps& ops, const fs::path& checkpoint, const Manifest& manifest,
                         Files files) {
  for (const auto& said : manifest.files) {
    if (files == Files::kTables && !said.name.starts_with(kTablesStem)) continue;
    PL_TRY(const auto file, open_file(ops, checkpoint, said.name));
    PL_TRY_VOID(compare(manifest, {said.name, file.size(), said.xxh3}, checkpoint));
  }
  return {};
}

Result<Manifest> read_base(FileOps& ops, const fs::path& checkpoint, const Base& base) {
  const auto path = checkpoint.parent_path() / step_name(base.step);
  PL_TRY(auto manifest, read_manifest(ops, path));
  if (manifest.id() != base) {
    return Error(Code::kCorruptData,
                 fmt::format("{} is another checkpoint of step {}: its manifest has hash {:016x}, "
                             "{:016x} is needed",
                             path.string(), base.step, manifest.xxh3, base.manifest_xxh3));
  }
  if (manifest.base) {
    return Error(Code::kCorruptData,
                 fmt::format("{} is itself a difference, which no base can be", path.string()));
  }
  PL_TRY_VOID(check_sizes(ops, path, manifest, Files::kTables));
  return manifest;
}

Result<void> compare(const Manifest& manifest, const FileRecord& read, const fs::path& checkpoint) {
  const FileRecord* const said = manifest.find(read.name);
  PL_CHECK(said != nullptr, "a file that the manifest names");
  const auto path = (checkpoint / read.name).string();
  if (read.bytes != said->bytes) {
    return Error(Code::kCorruptData, fmt::format("{} has {} bytes, its manifest says {}", path,
                                                 read.bytes, said->bytes));
  }
  if (read.xxh3 != said->xxh3) {
    return Error(Code::kCorruptData, fmt::format("{} has hash {:016x}, its manifest says {:016x}",
                                                 path, read.xxh3, said->xxh3));
  }
  return {};
}

std::uint64_t bytes_below(const fs::path& path) {
  std::error_code ec;
  if (fs::symlink_status(path, ec).type() != fs::file_type::directory) return 0;
  std::uint64_t sum = 0;
  fs::directory_iterator it(path, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    std::error_code failed;
    if (it->symlink_status(failed).type() != fs::file_type::regular) continue;
    const auto size = it->file_size(failed);
    if (!failed) sum += size;
  }
  return sum;
}

Result<void> set_aside(FileOps& ops, const fs::path& checkpoint, const std::string& why) {
  fs::path aside;
  for (int n = 1; aside.empty() || is_there(aside); ++n) {
    aside = checkpoint;
    aside += fmt::format(".corrupt-{}", n);
  }
  auto moved = ops.rename_new(checkpoint, aside);
  if (moved.ok()) moved = ops.sync_directory(checkpoint.parent_path());
  log::warning(fmt::format("checkpoint {} is broken ({}); {}", checkpoint.string(), why,
                           moved.ok() ? fmt::format("set aside as {}", aside.filename().string())
                                      : fmt::format("it stays: {}", moved.error().text())));
  return moved;
}

}  // namespace paceline::checkpoint
