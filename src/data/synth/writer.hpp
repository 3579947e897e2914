// Writes drawn rows as Parquet: the columns of docs/synth.md, nothing null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/error.hpp"
#include "data/synth/options.hpp"
#include "data/synth/rows.hpp"

namespace paceline::data::synth {

struct FileCounts {
  std::int64_t history_events = 0;
  std::int64_t candidates = 0;
  std::int64_t bytes = 0;
};

// Draws rows [first, first + rows) into one file; its bytes depend on the options and these alone.
// `columns` is scratch. After each row group `on_rows(n)` says that n more rows were written,
// before each row that 0 were; false stops. Errors: kIo naming the file, kOutOfMemory, kCancelled.
Result<FileCounts> write_file(const std::filesystem::path& path, const Options& options,
                              std::int64_t first, std::int64_t rows, RowDrawer& drawer,
                              RowColumns& columns,
                              const std::function<bool(std::int64_t)>& on_rows);

}  // namespace paceline::data::synth
