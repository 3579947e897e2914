// The state of a run at a step boundary, to and from a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "data/position.hpp"
#include "model/parameters.hpp"
#include "train/optimizer.hpp"

namespace paceline::train {

struct RunCounters {
  std::int64_t step = 0;  // batches consumed, whether applied or skipped
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped_steps = 0;  // non-finite, all in all
  std::int64_t bad_in_a_row = 0;
};

struct RunState {
  RunCounters counters;
  data::Position position;
  std::vector<std::pair<std::string, std::string>> config;  // key, value as TOML
};

// Views on `weights`, which must stay unchanged until the content is written.
checkpoint::Content to_content(const RunState& run, ModelState& weights,
                               const model::ParameterLayout& layout);

// Fills `weights` and returns the rest. kCorruptData when tensors are missing or of other shapes.
Result<RunState> from_loaded(const checkpoint::Loaded& loaded, const model::ParameterLayout& layout,
                             ModelState& weights);
// Only what rank and eval need: weights, not the optimizer's state.
Result<void> weights_from_loaded(const checkpoint::Loaded& loaded,
                                 const model::ParameterLayout& layout, ModelState& weights);

// The part that precedes the tensors: to compare configs before shapes are.
Result<RunState> state_from_json(const nlohmann::json& state);

}  // namespace paceline::train
