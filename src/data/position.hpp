// A place in the data. Counts rows, changes only at batch boundaries, knows nothing of batch
// limits, ranks, readers or depth: a run may resume with other values of those.
#pragma once

#include <cstdint>

namespace paceline::data {

// Bad data that was let pass.
struct SkippedData {
  std::int64_t bad_rows = 0;
  std::int64_t bad_blocks = 0;
  std::int64_t rows_of_bad_blocks = 0;
  friend bool operator==(const SkippedData&, const SkippedData&) = default;
};

struct Position {
  std::uint64_t fingerprint = 0;
  std::uint64_t seed = 0;
  std::int64_t shuffle_window = 0;
  std::int64_t epoch = 0;     // 0-based
  std::int64_t next_row = 0;  // of the epoch's global order
  std::int64_t rows = 0;      // consumed since the start of the run, all epochs
  std::int64_t batches = 0;   // consumed since the start of the run
  // What data.skip_bad_rows and data.skip_bad_blocks let pass in this epoch; part of `rows`.
  std::int64_t skipped_rows = 0;
  std::int64_t skipped_blocks = 0;
  SkippedData skipped;  // since the start of the run

  friend bool operator==(const Position&, const Position&) = default;
};

}  // namespace paceline::data
