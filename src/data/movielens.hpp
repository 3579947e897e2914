// MovieLens-100K as impressions: the data set of the quickstart.
//
// Reads `ml-100k.inter` (tab separated, one header line: user, item, rating, timestamp).
//   * events are ordered by (user, timestamp, item);
//   * a user's events are cut into consecutive groups of `candidates` (the last may be shorter);
//   * one row is one group: candidates are the group's items, history is up to `history` events
//     before it, oldest first; a row with fewer than `min_history` of them is not written;
//   * actions are a bit mask: 0 seen (always), 1 like (rating >= 4), 2 dislike (rating <= 2),
//     3 love (rating == 5);
//   * request_time is the group's first timestamp; rows are sorted by (request_time, user) and cut
//     80 / 10 / 10 by count into train, valid and test.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "core/error.hpp"

namespace paceline::data {

struct MovieLensOptions {
  std::int64_t history = 128;
  std::int64_t candidates = 8;
  std::int64_t min_history = 8;
};

struct MovieLensCounts {
  struct Split {
    std::int64_t rows = 0;
    std::int64_t candidates = 0;
  };
  std::int64_t events = 0;
  Split train, valid, test;
};

// Writes train.parquet, valid.parquet and test.parquet (zstd, 1024 rows a row group) into
// `out_dir`, which is created. They appear under their names only when all three are complete.
// Errors: kNotFound / kIo (files), kCorruptData (a malformed line, with its number),
// kInvalidArgument (options).
Result<MovieLensCounts> import_movielens(const std::filesystem::path& inter,
                                         const std::filesystem::path& out_dir,
                                         const MovieLensOptions& options = {});

}  // namespace paceline::data
