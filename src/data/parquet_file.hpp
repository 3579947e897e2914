// One Parquet file opened, and what Parquet and Arrow throw turned into errors. Private to this
// room.
#pragma once

#include <arrow/memory_pool.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/dataset_files.hpp"
#include "data/source.hpp"

namespace paceline::data {

// The error of the exception being handled. Call within a catch.
Error caught_error();

template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return caught_error();
  }
}

// The same error with `where` in front of its message.
Error at(Error error, const std::string& where);

// Where pages are decoded.
arrow::MemoryPool* memory_pool();

// Opens a file, with its footer if that is known already. Page checksums are verified.
// Errors: kIo (cannot be opened), kCorruptData, naming the file.
Result<std::unique_ptr<parquet::ParquetFileReader>> open_file(
    const DatasetFile& file, const std::shared_ptr<parquet::FileMetaData>& footer);

// open_parquet() for files that find_files() found.
Result<std::unique_ptr<Source>> open_parquet_files(const std::vector<DatasetFile>& found,
                                                   const features::Schema& schema,
                                                   const SourceOptions& options);

}  // namespace paceline::data
