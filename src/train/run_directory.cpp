#include "train/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

Error io_error(const std::string& what, const fs::path& path, int error) {
  return Error(Code::kIo,
               fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
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
  const fs::path lock_file = dir / ".lock";
  const int lock = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return io_error("write to the run directory", dir, errno);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return Error(
        Code::kUnavailable,
        fmt::format("{}: another process is training in this run directory; wait for it or "
                    "use another run.dir",
                    dir.string()));
  }
  return RunDirectory(dir, lock);
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

Result<void> RunDirectory::write_config(const std::string& resolved) const {
  return replace_file(path_ / "config.toml", resolved);
}

Result<void> RunDirectory::forget_after(std::int64_t step) {
  PL_TRY_VOID(keep_until(path_ / "metrics.jsonl", step));
  return keep_until(path_ / "eval.jsonl", step);
}

Result<void> RunDirectory::append_metrics(const nlohmann::json& object) {
  return append_json_line(path_ / "metrics.jsonl", object);
}

Result<void> append_json_line(const fs::path& file, const nlohmann::json& object) {
  const std::string line = object.dump() + '\n';
  const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) return io_error("open", file, errno);
  // One write per line: a kill leaves a whole line, a torn one at worst when the disk is full.
  const ssize_t written = ::write(out, line.data(), line.size());
  const int error = written < 0 ? errno : ENOSPC;
  ::close(out);
  if (written != static_cast<ssize_t>(line.size())) return io_error("append to", file, error);
  return {};
}

}  // namespace paceline::train
