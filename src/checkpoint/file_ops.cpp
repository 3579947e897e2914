#include "checkpoint/file_ops.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// Small enough that a piece is hashed and written from the cache.
constexpr std::size_t kPiece = std::size_t{1} << 20;

Result<void> rename_with(const fs::path& from, const fs::path& to, unsigned flags) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0) return {};
  if (flags != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // A file system without RENAME_NOREPLACE. A directory never replaces one that holds files.
    std::error_code ignored;
    if (fs::symlink_status(to, ignored).type() != fs::file_type::not_found) {
      return io_error(fmt::format("rename {} to", from.string()), to, EEXIST);
    }
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
  }
  return io_error(fmt::format("rename {} to", from.string()), to, errno);
}

}  // namespace

Error io_error(std::string_view what, const fs::path& path, int error_number, Loc at) {
  return Error(Code::kIo,
               fmt::format("cannot {} {}: {}", what, path.string(),
                           std::generic_category().message(error_number)),
               at);
}

Result<void> FileOps::make_directory(const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kMakeDirectory, path));
  if (::mkdir(path.c_str(), 0777) != 0) return io_error("make directory", path, errno);
  return {};
}

Result<int> FileOps::create(const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kCreate, path));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return io_error("create", path, errno);
  return fd;
}

Result<void> FileOps::write(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kWrite, path));
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> FileOps::sync_file(int fd, const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kSyncFile, path));
  if (::fsync(fd) != 0) return io_error("sync", path, errno);
  return {};
}

Result<void> FileOps::close(int fd, const fs::path& path) {
  // The descriptor is given back in any case.
  auto planned = before(FileOp::kClose, path);
  const int rc = ::close(fd);
  if (!planned.ok()) return planned;
  if (rc != 0) return io_error("close", path, errno);
  return {};
}

Result<void> FileOps::sync_directory(const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kSyncDirectory, path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("open directory", path, errno);
  const int rc = ::fsync(fd);
  const int error_number = errno;
  ::close(fd);
  if (rc != 0) return io_error("sync directory", path, error_number);
  return {};
}

Result<void> FileOps::rename_new(const fs::path& from, const fs::path& to) {
  PL_TRY_VOID(before(FileOp::kRename, to));
  return rename_with(from, to, RENAME_NOREPLACE);
}

Result<void> FileOps::rename_over(const fs::path& from, const fs::path& to) {
  PL_TRY_VOID(before(FileOp::kRename, to));
  return rename_with(from, to, 0);
}

Result<void> FileOps::symlink(const fs::path& target, const fs::path& link) {
  PL_TRY_VOID(before(FileOp::kLink, link));
  if (::symlink(target.c_str(), link.c_str()) != 0) return io_error("make link", link, errno);
  return {};
}

Result<void> FileOps::remove_all(const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kRemove, path));
  std::error_code ec;
  fs::remove_all(path, ec);
  if (ec) return io_error("remove", path, ec.value());
  return {};
}

FileOps& posix_file_ops() {
  static FileOps ops;
  return ops;
}

Hasher::Hasher() : state_(XXH3_createState()) {
  PL_CHECK(state_ != nullptr, "a hash state can be allocated");
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Hasher::Free::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::uint64_t Hasher::digest() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
}

std::uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

OutputFile::OutputFile(FileOps& ops, fs::path path, int fd)
    : ops_(&ops), path_(std::move(path)), fd_(fd) {}

OutputFile::OutputFile(OutputFile&& o) noexcept
    : ops_(o.ops_),
      path_(std::move(o.path_)),
      fd_(std::exchange(o.fd_, -1)),
      bytes_(o.bytes_),
      hasher_(std::move(o.hasher_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OutputFile> OutputFile::create(FileOps& ops, const fs::path& path) {
  PL_TRY(const int fd, ops.create(path));
  return OutputFile(ops, path, fd);
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    hasher_.add(piece);
    PL_TRY_VOID(ops_->write(fd_, piece, path_));
    bytes_ += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Result<FileRecord> OutputFile::finish() {
  PL_TRY_VOID(ops_->sync_file(fd_, path_));
  PL_TRY_VOID(ops_->close(std::exchange(fd_, -1), path_));
  return FileRecord{path_.filename().string(), bytes_, hasher_.digest()};
}

InputFile::InputFile(fs::path path, int fd, std::uint64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

InputFile::InputFile(InputFile&& o) noexcept
    : path_(std::move(o.path_)),
      fd_(std::exchange(o.fd_, -1)),
      size_(o.size_),
      done_(o.done_),
      hasher_(std::move(o.hasher_)) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<InputFile> InputFile::open(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return Error(Code::kNotFound, fmt::format("{} is missing", path.string()));
  }
  if (fd < 0) return io_error("open", path, errno);
  struct stat info {};
  const int rc = ::fstat(fd, &info);
  InputFile file(path, fd, rc == 0 ? static_cast<std::uint64_t>(info.st_size) : 0);
  if (rc != 0) return io_error("look at", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kCorruptData, fmt::format("{} is not a regular file", path.string()));
  }
  return file;
}

Result<void> InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(fd_, bytes.data(), std::min(kPiece, bytes.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("read", path_, errno);
    if (n == 0) {
      return Error(Code::kCorruptData, fmt::format("{} ends after {} bytes, {} more are needed",
                                                   path_.string(), done_, bytes.size()));
    }
    const auto count = static_cast<std::size_t>(n);
    hasher_.add(bytes.first(count));
    done_ += count;
    bytes = bytes.subspan(count);
  }
  return {};
}

Result<void> InputFile::skip_to_end() {
  std::vector<std::byte> piece(kPiece);
  while (done_ < size_) {
    PL_TRY_VOID(read(std::span(piece).first(std::min<std::uint64_t>(piece.size(), size_ - done_))));
  }
  return {};
}

FileRecord InputFile::record() const {
  return {path_.filename().string(), done_, hasher_.digest()};
}

Result<std::string> read_text(const fs::path& path, std::uint64_t limit_bytes) {
  PL_TRY(auto file, InputFile::open(path));
  if (file.size() > limit_bytes) {
    return Error(Code::kCorruptData, fmt::format("{} has {} bytes; at most {} are read",
                                                 path.string(), file.size(), limit_bytes));
  }
  std::string text(file.size(), '\0');
  PL_TRY_VOID(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace paceline::checkpoint
