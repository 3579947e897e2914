// The operations on files that a checkpoint is made of, one virtual step each, so that tests can
// fail or stop the program between any two. Private to the room. Blocking; one thread per object.
// Errors have Code::kIo with the path and the operating system's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace paceline::checkpoint {

enum class FileOp : std::uint8_t {
  kMakeDirectory,
  kCreate,
  kWrite,
  kSyncFile,
  kClose,
  kSyncDirectory,
  kRename,
  kLink,
  kRemove,
  kOpen,
  kRead,
  kList,
};
// Those that change nothing on the disk.
constexpr bool only_reads(FileOp op) {
  return op == FileOp::kOpen || op == FileOp::kRead || op == FileOp::kList;
}

enum class Links : std::uint8_t { kRefuse, kFollow };

struct OpenFile {
  int fd = -1;
  std::uint64_t bytes = 0;
};

class FileOps {
 public:
  FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;
  virtual ~FileOps() = default;

  // The directory must not exist; its parent must.
  Result<void> make_directory(const std::filesystem::path& path);
  // A new file for writing; an existing one is an error.
  Result<int> create(const std::filesystem::path& path);
  Result<void> write(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);
  Result<void> sync_file(int fd, const std::filesystem::path& path);
  Result<void> close(int fd, const std::filesystem::path& path);
  Result<void> sync_directory(const std::filesystem::path& path);
  // `to` must not exist.
  Result<void> rename_new(const std::filesystem::path& from, const std::filesystem::path& to);
  // A file or link at `to` is replaced atomically.
  Result<void> rename_over(const std::filesystem::path& from, const std::filesystem::path& to);
  Result<void> symlink(const std::filesystem::path& target, const std::filesystem::path& link);
  // With everything below it; nothing there is no error.
  Result<void> remove_all(const std::filesystem::path& path);

  // A regular file for reading. kNotFound; kCorruptData for what is no regular file, or for a
  // symbolic link that is not to be followed.
  Result<OpenFile> open(const std::filesystem::path& path, Links links);
  // Up to `bytes.size()`; 0 at the end.
  Result<std::size_t> read(int fd, std::span<std::byte> bytes, const std::filesystem::path& path);
  // Names in a directory, in no order. kNotFound.
  Result<std::vector<std::string>> list_directory(const std::filesystem::path& path);

 protected:
  // Called before each operation; an error is returned in its place.
  virtual Result<void> before(FileOp, const std::filesystem::path&) { return {}; }
};

FileOps& posix_file_ops();

// "cannot <what> <path>: <text of errno>".
Error io_error(std::string_view what, const std::filesystem::path& path, int error_number,
               Loc at = Loc::here());

}  // namespace paceline::checkpoint
