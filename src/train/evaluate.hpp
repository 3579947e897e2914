// Metrics of a split: the model's scores against the actions, per trained action.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/batch_pipeline.hpp"
#include "data/source.hpp"
#include "features/batch.hpp"
#include "train/metrics.hpp"
#include "train/scorer.hpp"
#include "train/stop_request.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

// Where rows carry the true probabilities of actions, as synthetic ones do: column
// `oracle_probability`, a list per row of structs with one number per action, named after it.
struct Oracle {
  features::Schema schema;           // the run's, which carries the columns along
  std::vector<std::int32_t> target;  // per action: index of its batch target, or -1
};

struct EvalSource {
  std::unique_ptr<data::Source> source;
  std::optional<Oracle> oracle;  // when at least one trained action has its probabilities
};

// Opens a split for evaluate(), with the probabilities of those trained actions that every file
// has.
Result<EvalSource> open_eval_source(const std::vector<std::string>& paths,
                                    const features::Schema& schema,
                                    const data::SourceOptions& options = {});

struct ActionMetrics {
  std::string action;
  MetricsReport report;
  std::optional<MetricsReport> oracle;  // of the true probabilities, without intervals
};

struct SplitMetrics {
  std::string split;
  std::vector<ActionMetrics> actions;
  features::CutCounts cuts;
  data::SkippedData skipped;
};

// Scores every row of `source` in file order, reading ahead; consumes nothing. `stop` ends it with
// Code::kCancelled. With `oracle` the source must have been opened with its schema.
Result<SplitMetrics> evaluate(const TrainConfig& config, const std::string& split,
                              const data::Source& source, Scorer& scorer, StopRequest& stop,
                              const Oracle* oracle = nullptr);

// One line of eval.jsonl per action; the oracle's metrics are the keys oracle_auc, oracle_ne, ...
Result<void> append_eval(const std::string& run_dir, std::int64_t step,
                         const SplitMetrics& metrics);

// The table that a person reads.
std::string metrics_table(const SplitMetrics& metrics);

}  // namespace paceline::train
