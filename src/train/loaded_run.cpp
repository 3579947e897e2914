#include "train/loaded_run.hpp"

#include <fmt/format.h>

#include "checkpoint/checkpoint.hpp"
#include "train/run_state.hpp"

namespace paceline::train {
namespace fs = std::filesystem;
namespace {

// Keys that say what the weights mean; seeds, and weights in loss and score, may be other ones.
bool changes_scores(const KeyChange& change) {
  const auto& key = change.key;
  const bool weighing =
      key.starts_with("actions[") && (key.ends_with(".score") || key.ends_with(".weight"));
  return change.what == KeyClass::kFixed && !weighing && key != "train.seed" &&
         key != "data.seed" && key != "data.shuffle_window";
}

}  // namespace

Result<TrainConfig> read_config(const fs::path& target, const std::vector<std::string>& overrides) {
  std::error_code ignored;
  const bool is_run = fs::is_directory(target, ignored);
  const fs::path file = is_run ? target / "config.toml" : target;
  if (is_run && !fs::exists(file, ignored)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} is a directory without a config.toml: not a run", target.string()));
  }
  PL_TRY(auto config, Config::load(file));
  if (is_run) {
    // A run may have been moved: its own files are where it is now.
    PL_TRY(auto asked, Config::load(file));
    PL_TRY(const std::string old_dir, asked.get_path("run.dir"));
    PL_TRY(const std::string old_checkpoints, asked.get_path("checkpoint.dir", ""));
    const fs::path here = fs::absolute(target, ignored).lexically_normal();
    PL_TRY_VOID(config.override_with("run.dir=" + here.string()));
    if (fs::path(old_checkpoints) == fs::path(old_dir) / "checkpoints") {
      PL_TRY_VOID(config.override_with("checkpoint.dir=" + (here / "checkpoints").string()));
    }
  }
  for (const auto& assignment : overrides) PL_TRY_VOID(config.override_with(assignment));
  return TrainConfig::from_config(config);
}

Result<std::unique_ptr<LoadedRun>> load_run(TrainConfig config) {
  auto run = std::make_unique<LoadedRun>();
  run->config = std::move(config);
  const TrainConfig& c = run->config;
  PL_TRY(run->device, choose_device(c.loop));
  auto loaded = checkpoint::load_newest(c.checkpoint.dir);
  if (!loaded) return Error(std::move(loaded.error()).context("opening the run " + c.run_dir));
  // Other features or sizes would give other scores without a word.
  PL_TRY(const RunState saved, state_from_json(loaded->state));
  std::string changes;
  for (const auto& change : changed_keys(saved.config, c.values)) {
    if (!changes_scores(change)) continue;
    changes +=
        fmt::format("\n  {}: the run has {}, the config has {}", change.key, change.was, change.is);
  }
  if (!changes.empty()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} was trained with other values:{}\nset them back, or name the run directory "
                    "instead of the config",
                    c.run_dir, changes));
  }
  run->step = loaded->step;
  run->checkpoint = loaded->path;
  run->pool = std::make_unique<pipeline::TaskPool>(c.threads());
  run->ctx = std::make_unique<ops::Context>(*run->pool);
  const model::ParameterLayout layout(c.model, c.schema);
  run->weights =
      std::make_unique<ModelState>(layout.size(), c.schema.table_rows(), c.model.table_width);
  PL_TRY_VOID(weights_from_loaded(*loaded, layout, *run->weights));
  return run;
}

Result<std::unique_ptr<Scorer>> LoadedRun::scorer(const features::Schema& schema,
                                                  const features::BatchLimits& limits) const {
  return make_scorer({config.model, schema, limits, *weights, *ctx, device});
}

}  // namespace paceline::train
