// Scores for exactly the rows of a Parquet input, in their order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "train/loaded_run.hpp"
#include "train/stop_request.hpp"

namespace paceline::train {

struct RankOptions {
  // Weights of action probabilities in the column `score`; empty: the config's score weights.
  std::vector<std::pair<std::string, double>> weights;
};

struct RankCounts {
  std::int64_t rows = 0;
  std::int64_t candidates = 0;
  features::CutCounts cuts;
  bool weighted = false;  // the column `score` was written
};

// Writes `score_<action>` (probability) for each trained action, `predicted_<target>` for each
// target, and `score`, the weighted sum, when any weight is not zero. Every candidate is scored,
// also beyond batch.candidates; histories are cut to batch.history_len and the cuts counted. The
// input needs no action columns. kCancelled when stopped; then no output appears.
Result<RankCounts> rank_file(const LoadedRun& run, const std::vector<std::string>& input,
                             const std::filesystem::path& output, const RankOptions& options,
                             const StopRequest& stop);

}  // namespace paceline::train
