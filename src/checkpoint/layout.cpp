#include "checkpoint/layout.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>

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

Result<std::vector<std::int64_t>> published_steps(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  std::error_code ec;
  fs::directory_iterator it(dir, ec);
  if (ec == std::errc::no_such_file_or_directory) return steps;
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const auto step = parse_step_name(it->path().filename().string());
    std::error_code ignored;
    if (step && it->is_directory(ignored)) steps.push_back(*step);
  }
  if (ec) return io_error("list directory", dir, ec.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<Manifest> read_manifest(const fs::path& checkpoint) {
  const auto path = checkpoint / kManifestName;
  auto text = read_text(path, kMaxManifestBytes);
  if (!text) return missing_file(std::move(text.error()), checkpoint);
  PL_TRY(auto manifest, parse_manifest(*text, path));
  const auto name = checkpoint.filename().string();
  if (const auto step = parse_step_name(name); step && *step != manifest.step) {
    return Error(Code::kCorruptData, fmt::format("{} is of step {}, its directory is {}",
                                                 path.string(), manifest.step, name));
  }
  for (const auto& needed : kFileNames) {
    if (manifest.find(needed) == nullptr) {
      return Error(Code::kCorruptData, fmt::format("{} does not name {}", path.string(), needed));
    }
  }
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

Result<Manifest> check(const fs::path& checkpoint, bool deep) {
  PL_TRY(auto manifest, read_manifest(checkpoint));
  for (const auto& said : manifest.files) {
    auto file = InputFile::open(checkpoint / said.name);
    if (!file) return missing_file(std::move(file.error()), checkpoint);
    FileRecord read{said.name, file->size(), said.xxh3};
    if (deep && read.bytes == said.bytes) {
      PL_TRY_VOID(file->skip_to_end());
      read = file->record();
    }
    PL_TRY_VOID(compare(manifest, read, checkpoint));
  }
  return manifest;
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
