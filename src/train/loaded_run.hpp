// A trained run opened for use: its config, its newest verified weights and their scores.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "ops/context.hpp"
#include "pipeline/task_pool.hpp"
#include "train/device_choice.hpp"
#include "train/model_state.hpp"
#include "train/scorer.hpp"
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
  std::unique_ptr<ModelState> weights;
  DeviceChoice device;

  // Scores of batches of that schema, by config.model. Schema and run must outlive the scorer.
  Result<std::unique_ptr<Scorer>> scorer(const features::Schema& schema,
                                         const features::BatchLimits& limits) const;
};

// kNotFound when the run has no complete checkpoint.
Result<std::unique_ptr<LoadedRun>> load_run(TrainConfig config);

}  // namespace paceline::train
