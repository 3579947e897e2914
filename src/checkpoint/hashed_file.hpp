// Files that are hashed as they pass. Private to the room. Blocking; one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/file_ops.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

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
  static Result<InputFile> open(FileOps& ops, const std::filesystem::path& path,
                                Links links = Links::kRefuse);
  InputFile(InputFile&& o) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Fills `bytes`; kCorruptData when the file ends before.
  Result<void> read(std::span<std::byte> bytes);
  // Reads `bytes`, or what is left, for its hash alone.
  Result<void> skip(std::uint64_t bytes);
  Result<void> skip_to_end() { return skip(left()); }
  std::uint64_t left() const { return done_ < size_ ? size_ - done_ : 0; }
  // Of what was read so far.
  FileRecord record() const;

 private:
  InputFile(FileOps& ops, std::filesystem::path path, OpenFile file);

  FileOps* ops_;
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0, done_ = 0;
  Hasher hasher_;
};

// A whole small file; kCorruptData above `limit_bytes`.
Result<std::string> read_text(FileOps& ops, const std::filesystem::path& path,
                              std::uint64_t limit_bytes);

}  // namespace paceline::checkpoint
