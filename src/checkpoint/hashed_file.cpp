#include "checkpoint/hashed_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

// Compiled here for the vectors that the program needs anyway: the library's own code uses SSE2.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

// Small enough that a piece is hashed and written from the cache.
constexpr std::size_t kPiece = std::size_t{1} << 20;

}  // namespace

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

InputFile::InputFile(FileOps& ops, fs::path path, OpenFile file)
    : ops_(&ops), path_(std::move(path)), fd_(file.fd), size_(file.bytes) {}

InputFile::InputFile(InputFile&& o) noexcept
    : ops_(o.ops_),
      path_(std::move(o.path_)),
      fd_(std::exchange(o.fd_, -1)),
      size_(o.size_),
      done_(o.done_),
      hasher_(std::move(o.hasher_)) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<InputFile> InputFile::open(FileOps& ops, const fs::path& path, Links links) {
  PL_TRY(const auto file, ops.open(path, links));
  return InputFile(ops, path, file);
}

Result<void> InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    PL_TRY(const std::size_t count,
           ops_->read(fd_, bytes.first(std::min(kPiece, bytes.size())), path_));
    if (count == 0) {
      return Error(Code::kCorruptData, fmt::format("{} ends after {} bytes, {} more are needed",
                                                   path_.string(), done_, bytes.size()));
    }
    hasher_.add(bytes.first(count));
    done_ += count;
    bytes = bytes.subspan(count);
  }
  return {};
}

Result<void> InputFile::skip(std::uint64_t bytes) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPiece, bytes));
  while (bytes > 0) {
    const auto count = std::min<std::uint64_t>(piece.size(), bytes);
    PL_TRY_VOID(read(std::span(piece).first(count)));
    bytes -= count;
  }
  return {};
}

FileRecord InputFile::record() const {
  return {path_.filename().string(), done_, hasher_.digest()};
}

Result<std::string> read_text(FileOps& ops, const fs::path& path, std::uint64_t limit_bytes) {
  PL_TRY(auto file, InputFile::open(ops, path));
  if (file.size() > limit_bytes) {
    return Error(Code::kCorruptData, fmt::format("{} has {} bytes; at most {} are read",
                                                 path.string(), file.size(), limit_bytes));
  }
  std::string text(file.size(), '\0');
  PL_TRY_VOID(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace paceline::checkpoint
