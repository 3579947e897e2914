// Metrics of a split: the model's scores against the actions, per trained action.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/source.hpp"
#include "features/batch.hpp"
#include "model/ranker.hpp"
#include "train/metrics.hpp"
#include "train/stop_request.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

struct ActionMetrics {
  std::string action;
  MetricsReport report;
};

struct SplitMetrics {
  std::string split;
  std::vector<ActionMetrics> actions;
  features::CutCounts cuts;
};

// Scores every row of `source` in file order, reading ahead. Uses `ranker` (its logits buffer is
// overwritten) and consumes nothing else; `stop` ends it with Code::kCancelled.
Result<SplitMetrics> evaluate(const TrainConfig& config, const std::string& split,
                              const data::Source& source, model::Ranker& ranker,
                              const model::Weights& weights, ops::Context& ctx, StopRequest& stop);

// One line of eval.jsonl per action.
Result<void> append_eval(const std::string& run_dir, std::int64_t step,
                         const SplitMetrics& metrics);

// The table that a person reads.
std::string metrics_table(const SplitMetrics& metrics);

}  // namespace paceline::train
