// Looks at a whole data set as training would read it: sizes, columns, lengths, rates, speed, and
// what training would refuse. Broken files and blocks do not end it; they are part of the report.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/batch_pipeline.hpp"
#include "data/file_columns.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"

namespace paceline::data {

struct InspectOptions {
  int threads = 1;
  std::int64_t limit_rows = 0;   // stops after the block with this row; 0: all
  std::int64_t max_listed = 20;  // refusals with their place; all are counted
  // What training would load with; its limits are those that inspect() is given.
  BatchPipelineOptions loading = {};
  // Called about ten times a second from the calling thread, with rows read and rows there are;
  // false stops after the blocks being read.
  std::function<bool(std::int64_t, std::int64_t)> on_progress = {};
};

// Lengths of lists. bins[0] counts 0, bins[b] lengths from 2^(b-1) to 2^b - 1.
struct LengthReport {
  std::int64_t rows = 0, total = 0;
  std::int64_t min = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  std::vector<std::int64_t> bins;
  double mean() const {
    return rows > 0 ? static_cast<double>(total) / static_cast<double>(rows) : 0.0;
  }
};

struct ColumnReport {
  FileColumn column;       // summed over files in which it has the same type
  std::int64_t files = 0;  // these
  bool read = false;       // by the schema
};

struct ActionReport {
  std::string name;
  int bit = 0;
  std::int64_t candidates = 0;  // with this action
  std::int64_t rows = 0;        // with a candidate with this action
};

// A row, a block or a whole file that training refuses.
struct Refusal {
  std::string file;
  std::int64_t row_group = -1;  // -1: the whole file
  std::int64_t row = -1;        // within the file; -1: the whole row group
  std::string why;
};

// What is wrong, without places and values.
struct RefusalKind {
  std::string what;    // "null", "not a complete Parquet file"
  std::string column;  // empty where it is not one column's fault
  friend auto operator<=>(const RefusalKind&, const RefusalKind&) = default;
};

struct ReasonReport {
  RefusalKind kind;
  std::int64_t rows = 0;                   // single ones, and those of row groups
  std::int64_t row_groups = 0, files = 0;  // whole ones
  Refusal first;
};

struct Inspection {
  bool stopped = false;
  // By the footers of all files that could be opened.
  std::int64_t files = 0, file_bytes = 0, blocks = 0, rows = 0;
  std::int64_t min_block_rows = 0, median_block_rows = 0, max_block_rows = 0;
  std::int64_t max_block_bytes = 0;  // decoded, by the footer; with the schema's columns
  BatchPipelineMemory memory;        // of options.loading
  std::vector<ColumnReport> columns;
  // By reading. Bad rows count as read, and in nothing else.
  std::int64_t rows_read = 0, blocks_read = 0;
  std::int64_t largest_block_bytes = 0;  // that a decoded block took
  LengthReport history, candidates;
  std::vector<ActionReport> actions;  // none where the schema reads no column of actions
  std::uint64_t undeclared_bits = 0;  // seen in action masks although no action declares them
  std::int64_t users = 0;             // different ones
  bool users_exact = true;
  bool has_time = false;
  std::int64_t first_time = 0, last_time = 0;  // of requests, as they stand in the column
  features::CutCounts cuts;                    // what batches of these limits would leave out
  double seconds = 0.0;                        // of reading, by the clock
  double read_seconds = 0.0;                   // within Source::read, summed over threads
  std::int64_t bytes_read = 0;                 // compressed, of the columns read
  // Refused.
  std::int64_t refused_rows = 0;  // single ones, and those of refused blocks
  std::int64_t refused_blocks = 0, refused_files = 0;
  std::vector<Refusal> refusals;        // files first, then the first rows
  std::vector<ReasonReport> by_reason;  // in order of kind
  bool anything_refused() const { return refused_rows + refused_blocks + refused_files > 0; }
};

// Paths as open_parquet() takes them. Reads with options.threads threads; the same report for any
// number of them, but for times. Errors: no files, no memory, no threads.
Result<Inspection> inspect(const std::vector<std::string>& paths, const features::Schema& schema,
                           const features::BatchLimits& limits, const InspectOptions& options = {});

// The kind of a refusal of (something in) `file`, by its message.
RefusalKind kind_of(const std::string& why, const std::string& file);

}  // namespace paceline::data
