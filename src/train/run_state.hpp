// The state of a run at a step boundary, to and from a checkpoint.
//
// state.json has `format_version` 2; version 1, without provenance, evaluations and cuts, is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "data/position.hpp"
#include "features/batch.hpp"
#include "model/parameters.hpp"
#include "ops/linear/linear_algorithms.hpp"
#include "train/model_state.hpp"
#include "train/provenance.hpp"

namespace paceline::train {

struct SplitMetrics;

struct RunCounters {
  std::int64_t step = 0;  // batches consumed, whether applied or skipped
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped_steps = 0;  // non-finite, all in all
  std::int64_t bad_in_a_row = 0;
};

// The best evaluation of a split so far: by the mean of the actions' AUC, which no other scale of
// labels or weights moves; actions without an AUC are left out. The first one stays on a tie.
struct BestEvaluation {
  std::int64_t step = 0;
  std::string metric;  // "mean_auc"
  double value = 0.0;
  friend bool operator==(const BestEvaluation&, const BestEvaluation&) = default;
};

struct RunState {
  RunCounters counters;
  data::Position position;
  features::CutCounts cuts;                                 // of the whole run
  std::map<std::string, BestEvaluation> best;               // by split
  Provenance provenance;                                    // run_id is empty in version 1
  std::vector<std::pair<std::string, std::string>> config;  // key, value as TOML
  ops::LinearAlgorithms algorithms;                         // of the GPU's products, if any
};

// Keeps the evaluation of the run's last step as the best of its split if it is better than those
// before. Without any AUC it is not counted.
void note_best(RunState& run, const SplitMetrics& metrics);

// Views on `weights`, which must stay unchanged until the content is written.
checkpoint::Content to_content(const RunState& run, ModelState& weights,
                               const model::ParameterLayout& layout);

// Reads a checkpoint straight into `weights`. Errors: what `check` returns of the state, which
// comes before any tensor; kInvalidArgument for a tensor of another shape than this model's.
class StateReceiver : public checkpoint::Receiver {
 public:
  using Check = std::function<Result<void>(const RunState& saved)>;
  StateReceiver(const model::ParameterLayout& layout, ModelState& weights, Check check);

  Result<void> state(const nlohmann::json& state, const std::filesystem::path& from) override;
  Result<std::optional<std::span<std::byte>>> tensor(checkpoint::Part part,
                                                     const checkpoint::TensorInfo& tensor,
                                                     const std::filesystem::path& from) override;
  // After the restore: kCorruptData when a tensor of this model was not there.
  Result<RunState> take(const std::filesystem::path& checkpoint);

 private:
  struct Place {
    checkpoint::Part part;
    std::vector<std::int64_t> shape;
    std::span<float> memory;
    bool received = false;
  };
  void add(checkpoint::Part part, std::string name, std::vector<std::int64_t> shape,
           std::span<float> memory);

  ModelState& weights_;
  Check check_;
  std::map<std::string, Place> places_;
  RunState run_;
};

// Only what rank and eval need: weights, not the optimizer's state.
Result<void> weights_from_loaded(const checkpoint::Loaded& loaded,
                                 const model::ParameterLayout& layout, ModelState& weights);

// The part that precedes the tensors: to compare configs before shapes are.
Result<RunState> state_from_json(const nlohmann::json& state);

}  // namespace paceline::train
