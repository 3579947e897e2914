// Reads a column chunk straight from its pages: levels become offsets, values go to where they
// stay. No Arrow arrays in between. Private to this room.
#pragma once

#include <parquet/file_reader.h>

#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "data/parquet_column.hpp"
#include "data/parquet_rows.hpp"
#include "features/batch.hpp"

namespace paceline::data {

// Columns get this part more memory than their values take, for blocks that are somewhat larger.
inline constexpr std::int64_t kRoomPart = 32;

// Where a column goes.
struct ColumnTarget {
  int index = 0;          // of the schema
  std::int64_t rows = 0;  // that the row group declares
  bool first = false;     // list column whose offsets become those of its side
  std::vector<std::int64_t>* offsets = nullptr;  // [rows + 1], of its side
  features::ColumnValues* values = nullptr;      // its memory is reused
};

// Reads all values of a column chunk. Lists: with `first` their offsets are written, else they are
// fitted to those there: too long ones are cut, short ones filled with 0. Rows that cannot be used
// are added to `issues`, in no order; those of a lenient column hold NaN instead.
// Errors: kCorruptData. Throws what parquet throws.
Result<void> read_column(parquet::RowGroupReader& group, const ParquetColumn& column,
                         const ColumnTarget& to, RowIssues& issues);

}  // namespace paceline::data
