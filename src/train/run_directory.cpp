#include "train/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "core/config.hpp"
#include "core/log.hpp"
#include "data/dataset_listing.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

Error io_error(const std::string& what, const fs::path& path, int error) {
  return Error(Code::kIo,
               fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

// Lines of a run's metrics that may wait for space on the disk.
constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20;

constexpr std::string_view kWrittenByRun =
    "# Written by a run of paceline: every key with the value used.";

// The directory is this process's until it ends.
Result<int> take_lock(const fs::path& dir) {
  const fs::path file = dir / ".lock";
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return io_error("write to the directory", dir, errno);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return Error(
        Code::kUnavailable,
        fmt::format(
            "{}: another process trains or prunes here; wait for it or use another directory",
            dir.string()));
  }
  return lock;
}

// Writes a sibling file and renames it over `file`.
Result<void> replace_file(const fs::path& file, const std::string& text) {
  const fs::path fresh = file.string() + ".new";
  const int out = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0) return io_error("write", fresh, errno);
  const ssize_t written = ::write(out, text.data(), text.size());
  int failed = written < 0 ? errno : written < static_cast<ssize_t>(text.size()) ? ENOSPC : 0;
  if (failed == 0 && ::fsync(out) != 0) failed = errno;
  ::close(out);
  std::error_code error;
  if (failed != 0) {
    fs::remove(fresh, error);
    return io_error("write", fresh, failed);
  }
  fs::rename(fresh, file, error);
  if (error) return io_error("replace", file, error.value());
  // So that the new name survives a loss of power too.
  if (const int parent = ::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      parent >= 0) {
    ::fsync(parent);
    ::close(parent);
  }
  return {};
}

// Keeps the whole lines whose "step" is at most `step`.
Result<void> keep_until(const fs::path& file, std::int64_t step) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return {};
  std::string kept;
  std::string line;
  bool dropped = false;
  while (std::getline(in, line)) {
    const bool whole = !in.eof();
    const auto object = nlohmann::json::parse(line, nullptr, false);
    const bool keep = whole && object.is_object() && object.contains("step") &&
                      object["step"].is_number_integer() &&
                      object["step"].get<std::int64_t>() <= step;
    if (keep) {
      kept += line;
      kept += '\n';
    } else {
      dropped = true;
    }
  }
  if (!dropped) return {};
  return replace_file(file, kept);
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return io_error("create the run directory", dir, error.value());
  PL_TRY(const int lock, take_lock(dir));
  return RunDirectory(dir, lock);
}

Result<void> RunDirectory::lock_checkpoints(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return io_error("create the checkpoint directory", dir, error.value());
  if (fs::equivalent(dir, path_, error)) return {};
  PL_TRY(checkpoint_lock_, take_lock(dir));
  return {};
}

Result<void> RunDirectory::check_is_run(const std::string& checkpoints) const {
  const fs::path config_file = path_ / "config.toml";
  std::ifstream in(config_file, std::ios::binary);
  std::string first;
  std::getline(in, first);
  if (!in && !first.empty()) first.clear();
  std::error_code none;
  if (!fs::exists(config_file, none)) {
    if (!fs::exists(path_ / "metrics.jsonl", none)) return {};
    return Error(
        Code::kInvalidArgument,
        fmt::format(
            "run.dir {} holds a metrics.jsonl but no run; allowed: a new directory, or one that "
            "a run has written",
            path_.string()));
  }
  if (first != kWrittenByRun) {
    return Error(
        Code::kInvalidArgument,
        fmt::format(
            "run.dir {} holds a config.toml that no run has written; allowed: a new directory, or "
            "one that a run has written",
            path_.string()));
  }
  PL_TRY(auto before, Config::load(config_file));
  PL_TRY(const std::string old, before.get_path("checkpoint.dir", checkpoints));
  PL_TRY(const std::string old_run, before.get_path("run.dir", path_.string()));
  // A run that was moved as a whole has its checkpoints where it is now.
  if (old == checkpoints || fs::path(old) == fs::path(old_run) / "checkpoints") return {};
  if (fs::is_directory(old, none) && !fs::is_empty(old, none)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format(
            "checkpoint.dir: the run has its checkpoints in {}, the config says {}; set it back, "
            "or move them",
            old, checkpoints));
  }
  return {};
}

bool RunDirectory::has_evaluation(std::int64_t step, const std::string& split) const {
  std::ifstream in(path_ / "eval.jsonl", std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.value("step", std::int64_t{-1}) == step &&
        object.value("split", "") == split) {
      return true;
    }
  }
  return false;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      checkpoint_lock_(std::exchange(other.checkpoint_lock_, -1)),
      kept_(std::move(other.kept_)) {}

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  std::swap(checkpoint_lock_, other.checkpoint_lock_);
  std::swap(kept_, other.kept_);
  return *this;
}

RunDirectory::~RunDirectory() {
  for (const int lock : {lock_, checkpoint_lock_}) {
    if (lock >= 0) ::close(lock);
  }
}

Result<void> RunDirectory::write_config(const std::string& resolved) const {
  return replace_file(path_ / "config.toml", std::string(kWrittenByRun) + "\n" + resolved);
}

namespace {

std::string listing_name(std::uint64_t fingerprint) {
  return fmt::format("data_files_{:016x}.jsonl", fingerprint);
}

}  // namespace

Result<std::vector<data::FileInfo>> RunDirectory::data_files(std::uint64_t fingerprint) const {
  const fs::path file = path_ / listing_name(fingerprint);
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::vector<data::FileInfo>{};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return data::read_listing(text).context(file.string());
}

Result<void> RunDirectory::write_data_files(std::uint64_t fingerprint,
                                            const std::vector<data::FileInfo>& files) const {
  return replace_file(path_ / listing_name(fingerprint), data::listing_text(files));
}

Result<void> RunDirectory::forget_after(std::int64_t step) {
  PL_TRY_VOID(keep_until(path_ / "metrics.jsonl", step));
  PL_TRY_VOID(keep_until(path_ / "eval.jsonl", step));
  return keep_until(path_ / "saves.jsonl", std::numeric_limits<std::int64_t>::max());
}

namespace {

// Appends all of `text` in one write, so that a kill leaves whole lines, or nothing. 0 or errno.
int append_text(const fs::path& file, const std::string& text) {
  const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) return errno;
  struct stat before {};
  int failed = ::fstat(out, &before) != 0 ? errno : 0;
  if (failed == 0) {
    const ssize_t written = ::write(out, text.data(), text.size());
    failed = written < 0 ? errno : written < static_cast<ssize_t>(text.size()) ? ENOSPC : 0;
    // What did not fit leaves no torn line behind.
    if (written > 0 && failed != 0 && ::ftruncate(out, before.st_size) != 0) failed = errno;
  }
  ::close(out);
  return failed;
}

}  // namespace

Result<void> RunDirectory::append_metrics(const nlohmann::json& object) {
  const bool waiting = !kept_.empty();
  kept_ += object.dump() + '\n';
  const fs::path file = path_ / "metrics.jsonl";
  const int failed = append_text(file, kept_);
  if (failed == 0) {
    if (waiting) log::info(file.string() + ": the lines that were kept are written");
    kept_.clear();
    return {};
  }
  const bool full = failed == ENOSPC || failed == EDQUOT;
  if (!full || kept_.size() > kMaxKeptBytes) return io_error("append to", file, failed);
  if (!waiting) {
    log::warning(fmt::format("{}: {}; lines are kept in memory until there is space", file.string(),
                             std::strerror(failed)));
  }
  return {};
}

Result<void> RunDirectory::flush_metrics() {
  if (kept_.empty()) return {};
  const fs::path file = path_ / "metrics.jsonl";
  if (const int failed = append_text(file, kept_); failed != 0) {
    return io_error("append to", file, failed);
  }
  kept_.clear();
  return {};
}

void RunDirectory::append_save(const nlohmann::json& object) {
  if (auto appended = append_json_line(path_ / "saves.jsonl", object); !appended) {
    log::warning(appended.error().text());
  }
}

Result<void> append_json_line(const fs::path& file, const nlohmann::json& object) {
  if (const int failed = append_text(file, object.dump() + '\n'); failed != 0) {
    return io_error("append to", file, failed);
  }
  return {};
}

}  // namespace paceline::train
