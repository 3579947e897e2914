// Where rows come from: a list of blocks with row counts known without reading the data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"

namespace paceline::data {

struct BlockInfo {
  std::int64_t rows = 0;
  std::int64_t first_row = 0;    // within the dataset
  std::string where;             // "part-0003.parquet, row group 2": for messages
  std::int64_t bytes = 0;        // at most this much memory holds it decoded, as the footer says
  std::int64_t row_of_file = 0;  // its first row within its file: for messages
};

// One file as the fingerprint sees it.
struct FileInfo {
  std::string relative;  // to the path that named it
  std::int64_t bytes = 0;
  std::int64_t rows = 0;
  std::int64_t blocks = 0;
  std::uint64_t digest = 0;  // of the row counts of its blocks
  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// A block may be empty. read() may be called from several threads at once, for any block.
class Source {
 public:
  virtual ~Source() = default;

  virtual const std::vector<BlockInfo>& blocks() const = 0;
  virtual std::int64_t rows() const = 0;
  // 64-bit digest of relative paths, sizes and row counts of every block.
  virtual std::uint64_t fingerprint() const = 0;
  // What the fingerprint is made of; empty for a source without files.
  virtual const std::vector<FileInfo>& files() const = 0;

  // Decodes block `index` into `out`, reusing its memory. Up to SourceOptions::max_bad_rows rows
  // that cannot be used are listed in out.bad_rows; more of them, or damage that leaves no rows,
  // are an error. Errors name file, row group, column and, where it is one row's fault, the row
  // within the file. A call that hangs may outlive the source:
  // after it has waited for I/O it must not touch the source object.
  virtual Result<void> read(std::int64_t index, features::RowBlock& out) const = 0;
};

struct SourceOptions {
  std::int64_t max_bad_rows = 0;  // of one block
};

// Opens Parquet files: a directory (searched recursively), a file, a glob, or a list of these.
// Reads footers only; checks that every file has the schema's columns with usable types.
Result<std::unique_ptr<Source>> open_parquet(const std::vector<std::string>& paths,
                                             const features::Schema& schema,
                                             const SourceOptions& options = {});

}  // namespace paceline::data
