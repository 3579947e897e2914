// What values the first rows of a file hold: the ground of suggest_config(). Private to this room.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/error.hpp"
#include "data/dataset_files.hpp"
#include "features/schema.hpp"

namespace paceline::data {

struct ValueSample {
  std::int64_t count = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::uint64_t bits = 0;                     // set in any value
  std::vector<std::int64_t> bit_counts;       // [64]: values with the bit set
  std::unordered_set<std::int64_t> distinct;  // of integers, the first kMostDistinct
  std::vector<float> floats;                  // the first kMostFloats, unordered

  static constexpr std::size_t kMostDistinct = std::size_t{1} << 17;
  static constexpr std::size_t kMostFloats = std::size_t{1} << 16;
};

struct ColumnSample {
  std::int64_t rows = 0;
  std::int64_t bad_rows = 0;  // of these: left out of lengths
  std::int64_t longest_history = 0, longest_candidates = 0;
  std::map<std::string, ValueSample> columns;
};

// Reads row groups of one file until kSampleRows rows were seen; kMask columns give bits, kInt64
// columns bits and distinct values, kFloat columns floats. Broken row groups and those that take
// more than kMostSampleBytes are passed over. `columns`: one entry per name.
// Errors: the file cannot be opened, or no row group could be read.
inline constexpr std::int64_t kSampleRows = 8192;
inline constexpr std::int64_t kMostSampleBytes = std::int64_t{1} << 31;
Result<ColumnSample> sample_columns(const DatasetFile& file,
                                    const std::vector<features::Column>& columns);

}  // namespace paceline::data
