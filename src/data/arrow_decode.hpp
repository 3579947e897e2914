// The floor that reading is measured against: the same columns of the same files decoded by Arrow's
// own reader into Arrow tables, and nothing done with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "features/schema.hpp"

namespace paceline::data {

struct ArrowDecode {
  std::int64_t rows = 0;
  double cpu_s = 0;   // of the process
  double wall_s = 0;  // of the same reads
};

// Decodes the schema's columns of every row group, one after the other, on the calling thread.
// Opening files and reading footers is not counted. Errors: those of open_parquet, or kCorruptData
// naming the file.
Result<ArrowDecode> decode_with_arrow(const std::vector<std::string>& paths,
                                      const features::Schema& schema);

}  // namespace paceline::data
