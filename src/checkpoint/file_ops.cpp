#include "checkpoint/file_ops.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

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

Result<OpenFile> FileOps::open(const fs::path& path, Links links) {
  PL_TRY_VOID(before(FileOp::kOpen, path));
  // A pipe of that name would block without O_NONBLOCK.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  const int fd = ::open(path.c_str(), flags);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return Error(Code::kNotFound, fmt::format("{} is missing", path.string()));
  }
  if (fd < 0 && errno == ELOOP) {
    return Error(Code::kCorruptData,
                 fmt::format("{} is a symbolic link, which is not followed", path.string()));
  }
  struct stat info {};
  if (fd < 0 && errno != ENXIO) return io_error("open", path, errno);
  if (fd >= 0 && ::fstat(fd, &info) != 0) {
    const int error_number = errno;
    ::close(fd);
    return io_error("look at", path, error_number);
  }
  if (fd < 0 || !S_ISREG(info.st_mode)) {
    if (fd >= 0) ::close(fd);
    return Error(Code::kCorruptData, fmt::format("{} is not a regular file", path.string()));
  }
  return OpenFile{fd, static_cast<std::uint64_t>(info.st_size)};
}

Result<std::size_t> FileOps::read(int fd, std::span<std::byte> bytes, const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kRead, path));
  for (;;) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return io_error("read", path, errno);
  }
}

Result<std::vector<std::string>> FileOps::list_directory(const fs::path& path) {
  PL_TRY_VOID(before(FileOp::kList, path));
  std::vector<std::string> names;
  std::error_code ec;
  fs::directory_iterator it(path, ec);
  if (ec == std::errc::no_such_file_or_directory) {
    return Error(Code::kNotFound, fmt::format("{} is missing", path.string()));
  }
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    names.push_back(it->path().filename().string());
  }
  if (ec) return io_error("list directory", path, ec.value());
  return names;
}

FileOps& posix_file_ops() {
  static FileOps ops;
  return ops;
}

}  // namespace paceline::checkpoint
