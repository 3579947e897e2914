#include "data/parquet_file.hpp"

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <exception>
#include <utility>

namespace paceline::data {
namespace {

[[maybe_unused]] constexpr int kKeepPagesMs = 10'000;

parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties(memory_pool());
  properties.set_page_checksum_verification(true);
  return properties;
}

arrow::Result<std::shared_ptr<arrow::io::RandomAccessFile>> open_stream(const DatasetFile& file) {
  if (!file.remote) return arrow::io::ReadableFile::Open(file.path, memory_pool());
  // With its size known no question about it goes over the network.
  arrow::fs::FileInfo info(file.remote_path, arrow::fs::FileType::File);
  info.set_size(file.bytes);
  return file.remote->OpenInputFile(info);
}

// With what the system said, which Arrow keeps beside its message.
std::string reason_of(const arrow::Status& status) {
  const auto detail = status.detail();
  return detail ? fmt::format("{} ({})", status.message(), detail->ToString()) : status.message();
}

// Offsets of a footer mean nothing in another file.
Result<void> check_unchanged(const DatasetFile& file) {
  struct stat now {};
  if (file.remote || ::stat(file.path.c_str(), &now) != 0) return {};
  const std::int64_t changed =
      std::int64_t{now.st_mtim.tv_sec} * 1'000'000'000 + now.st_mtim.tv_nsec;
  if (now.st_size == file.bytes && changed == file.changed_ns) return {};
  return Error(Code::kIo, fmt::format("{}: the file was changed since the start: it had {} bytes, "
                                      "now {}",
                                      file.path, file.bytes, now.st_size));
}

}  // namespace

Error caught_error() {
  try {
    throw;
  } catch (const parquet::ParquetStatusException& e) {
    const auto status = e.status();
    return Error(status.IsOutOfMemory() ? Code::kOutOfMemory
                 : status.IsIOError()   ? Code::kIo
                                        : Code::kCorruptData,
                 status.message());
  } catch (const parquet::ParquetException& e) {
    return Error(Code::kCorruptData, e.what());
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory, "no memory for its values");
  } catch (const std::exception& e) {
    return Error(Code::kCorruptData, e.what());
  }
}

Error at(Error error, const std::string& where) {
  return Error(error.code(), fmt::format("{}: {}", where, error.message()), error.at());
}

// Pages come and go with every block: a pool that gives their memory back to the system in between
// spends a tenth of the reading on page faults. Sanitizers follow memory of the system's allocator
// only.
arrow::MemoryPool* memory_pool() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return arrow::system_memory_pool();
#else
  static arrow::MemoryPool* const pool = [] {
    arrow::MemoryPool* keeping = nullptr;
    const bool there = arrow::jemalloc_memory_pool(&keeping).ok() &&
                       arrow::jemalloc_set_decay_ms(kKeepPagesMs).ok();
    return there ? keeping : arrow::default_memory_pool();
  }();
  return pool;
#endif
}

Result<std::unique_ptr<parquet::ParquetFileReader>> open_file(
    const DatasetFile& file, const std::shared_ptr<parquet::FileMetaData>& footer) {
  auto stream = open_stream(file);
  if (!stream.ok()) {
    return Error(Code::kIo, fmt::format("{}: {}", file.path, reason_of(stream.status())));
  }
  PL_TRY_VOID(check_unchanged(file));
  auto opened = guarded([&]() -> Result<std::unique_ptr<parquet::ParquetFileReader>> {
    return parquet::ParquetFileReader::Open(*stream, reader_properties(), footer);
  });
  if (!opened && opened.error().code() == Code::kIo) {
    return at(std::move(opened.error()), file.path);
  }
  if (!opened) {
    return Error(opened.error().code(),
                 fmt::format("{} ({} bytes): not a complete Parquet file: {}", file.path,
                             file.bytes, opened.error().message()));
  }
  return opened;
}

}  // namespace paceline::data
