// Files of table rows: cut into parts by size, read row range by row range. Private to the room.
//
// All tensors of the tables share their first dimension. A file holds the entries [begin, end) of
// them; entries are the table's rows, or, in a difference, the rows that its row index lists. The
// metadata says so: {begin, end, entries, rows}, decimal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hashed_file.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/error.hpp"

namespace paceline::checkpoint {

// kInvalidArgument for tensors or rows that do not fit each other.
Result<std::vector<FileRecord>> write_table_files(FileOps& ops, const std::filesystem::path& hidden,
                                                  std::span<const TensorView> tables,
                                                  const TableDelta* delta,
                                                  std::uint64_t shard_bytes);

struct TableRange {
  std::int64_t begin = 0, end = 0, entries = 0;  // 0 <= begin <= end <= entries
  std::int64_t rows = 0;                         // of the whole table
};

struct TableFile {
  InputFile in;                     // at the first tensor's data
  std::vector<TensorInfo> tensors;  // of this file, each of end - begin entries
  TableRange range;
};

// One file of a checkpoint, its header read and checked by itself.
Result<TableFile> open_table_file(FileOps& ops, const std::filesystem::path& checkpoint,
                                  const Manifest& manifest, const std::string& name);

// A tensor of the whole table, and where its rows go.
struct TableTensor {
  TensorInfo info;
  std::uint64_t row_bytes = 0;
  std::optional<std::span<std::byte>> memory;
};

// The whole table's, as the first file of a full checkpoint tells them; no memory yet. Sizes are
// checked against those of all files.
Result<std::vector<TableTensor>> table_tensors(const TableFile& first, const Manifest& manifest);

// One file of a full checkpoint after the other; `next` is where it has to begin.
Result<void> read_rows(TableFile& file, std::span<const TableTensor> tensors, std::int64_t next);

// One file of a difference after the other: its rows are appended to `rows`, their values put over
// those of the base.
Result<void> scatter_rows(TableFile& file, std::span<const TableTensor> tensors,
                          std::int64_t table_rows, std::vector<std::int64_t>& rows);

}  // namespace paceline::checkpoint
