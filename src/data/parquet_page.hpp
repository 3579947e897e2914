// A data page of a column chunk, taken apart: levels and encoded values. Private to this room.
#pragma once

#include <parquet/column_page.h>

#include <cstdint>
#include <span>

#include "core/error.hpp"
#include "data/parquet_levels.hpp"

namespace paceline::data {

// Views into the page.
struct PageParts {
  PackedLevels rep, def;
  std::span<const std::uint8_t> values;
  parquet::Encoding::type encoding = parquet::Encoding::PLAIN;
};

// Errors: kCorruptData when the parts do not fit into the page.
Result<PageParts> split_page(const parquet::Page& page, int max_def, int max_rep);

}  // namespace paceline::data
