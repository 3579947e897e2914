// The operations on files that a checkpoint is made of, one virtual step each, so that tests can
// fail or stop the program between any two. Private to the room. Blocking; one thread per object.
// Errors have Code::kIo with the path and the operating system's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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

 protected:
  // Called before each operation; an error is returned in its place.
  virtual Result<void> before(FileOp, const std::filesystem::path&) { return {}; }
};

FileOps& posix_file_ops();

// "cannot <what> <path>: <text of errno>".
Error io_error(std::string_view what, const std::filesystem::path& path, int error_number,
               Loc at = Loc::here());

// XXH3-64, fed in pieces.
class Hasher {
 public:
  Hasher();
  void add(std::span<const std::byte> bytes);
  std::uint64_t digest() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

std::uint64_t hash_of(std::string_view text);

struct FileRecord {
  std::string name;  // without directory
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;
};

// A new file that is hashed while it is written.
class OutputFile {
 public:
  static Result<OutputFile> create(FileOps& ops, const std::filesystem::path& path);
  OutputFile(OutputFile&& o) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // closes without syncing when finish() was not reached

  Result<void> write(std::span<const std::byte> bytes);
  // Syncs and closes.
  Result<FileRecord> finish();

 private:
  OutputFile(FileOps& ops, std::filesystem::path path, int fd);

  FileOps* ops_;
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  Hasher hasher_;
};

// A file that is hashed while it is read, from its begin to its end.
class InputFile {
 public:
  // kNotFound when there is none.
  static Result<InputFile> open(const std::filesystem::path& path);
  InputFile(InputFile&& o) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  std::uint64_t size() const { return size_; }
  // Fills `bytes`; kCorruptData when the file ends before.
  Result<void> read(std::span<std::byte> bytes);
  // Reads what is left, for its hash alone.
  Result<void> skip_to_end();
  // Of what was read so far.
  FileRecord record() const;

 private:
  InputFile(std::filesystem::path path, int fd, std::uint64_t size);

  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0, done_ = 0;
  Hasher hasher_;
};

// A whole small file; kCorruptData above `limit_bytes`.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace paceline::checkpoint
