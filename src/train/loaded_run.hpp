// A trained run opened for use: its config, the newest verified weights, a ranker to run them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "model/ranker.hpp"
#include "pipeline/task_pool.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

// The config of `target`: a config file, or a run directory (its config.toml, read as if the run
// still lived there, wherever it was trained). `overrides` are --set assignments.
Result<TrainConfig> read_config(const std::filesystem::path& target,
                                const std::vector<std::string>& overrides);

struct LoadedRun {
  TrainConfig config;
  std::int64_t step = 0;
  std::filesystem::path checkpoint;
  std::unique_ptr<pipeline::TaskPool> pool;
  std::unique_ptr<ops::Context> ctx;
  std::unique_ptr<model::Ranker> ranker;  // for config.limits, without backward state
  std::unique_ptr<ModelState> weights;

  model::Weights view() const { return {weights->dense(), weights->table()}; }
};

// kNotFound when the run has no complete checkpoint. The result does not move after this: schema
// and ranker refer to each other.
Result<std::unique_ptr<LoadedRun>> load_run(TrainConfig config);

}  // namespace paceline::train
