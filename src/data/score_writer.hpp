// Writes scores next to what identifies them, as Parquet.
//
// Columns: the schema's user and time columns and every candidate id column as they were read
// (int64), then one list<float> column per score, parallel to the candidates. Rows come out in the
// order of append(); one row group per call. The file appears under its name only when complete.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"

namespace paceline::data {

class ScoreWriter {
 public:
  // The schema must outlive the writer.
  static Result<std::unique_ptr<ScoreWriter>> create(const std::filesystem::path& out,
                                                     const features::Schema& schema,
                                                     const std::vector<std::string>& score_names);
  // Without finish() nothing is left behind.
  ~ScoreWriter();

  // scores[s]: score s of every candidate of the block, in order.
  Result<void> append(const features::RowBlock& block, std::span<const std::vector<float>> scores);
  Result<void> finish();

 private:
  struct Impl;
  explicit ScoreWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::data
