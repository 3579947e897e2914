// How a column of the schema lies in a Parquet file. Private to this room.
#pragma once

#include <parquet/schema.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
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

}  // namespace paceline::data
