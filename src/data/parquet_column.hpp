// One column of a Parquet file, read straight from its pages: levels become offsets, values go to
// where they stay. No Arrow arrays in between. Private to this room.
#pragma once

#include <parquet/column_reader.h>
#include <parquet/schema.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"

namespace paceline::data {

// How a schema column is stored in one file.
struct ParquetColumn {
  int leaf = -1;                    // column of the file
  features::Column wanted;          // what it is read as
  bool is_unsigned = false;         // an unsigned integer type
  bool is_bools = false;            // list<list<bool>>: bit i of a mask is element i
  std::int16_t max_def = 0;         // a value is there
  std::int16_t max_rep = 0;         // 0 scalar, 1 list, 2 list of lists of bool
  std::int16_t list_def = 0;        // list: at least this when the list has an element
  std::int16_t inner_list_def = 0;  // is_bools: the same for the inner list
};

// Finds `wanted` in the file and checks that its type can be read as that. Where no column has the
// name "a.b", it is field b of the struct, or of the list of structs, in column a.
// Errors: kNotFound (no such column, naming the nearest), kInvalidArgument (another type).
Result<ParquetColumn> match_column(const parquet::SchemaDescriptor& file,
                                   const features::Column& wanted);

// Reads all values of a column chunk of `rows` rows into `out` (ints or floats by the wanted
// element), reusing its memory. Lists: with `first` their offsets are written to `offsets`
// [rows + 1], else they must be equal to those there. `first_row` is the chunk's first row within
// the file, for messages. `values_hint`: how many values to expect.
// Errors: kCorruptData. Throws what parquet throws.
Result<void> read_column(parquet::ColumnReader& reader, const ParquetColumn& column,
                         std::int64_t rows, std::int64_t first_row, std::int64_t values_hint,
                         bool first, std::vector<std::int64_t>& offsets,
                         features::ColumnValues& out);

}  // namespace paceline::data
