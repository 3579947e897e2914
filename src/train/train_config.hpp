// Everything that a run needs to know, read from one config file and checked before any work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "core/error.hpp"
#include "data/batch_pipeline.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "train/optimizer.hpp"
#include "train/schedule.hpp"

namespace paceline::train {

struct DataConfig {
  std::vector<std::string> train, valid, test;  // directories, files or globs; may be empty
  int depth = 1;
  int readers = 1;
  std::int64_t shuffle_window = 16;
  std::uint64_t seed = 1;
  double stall_limit_s = 600;
  std::int64_t memory_limit = 0;     // bytes; "auto" is 80 % of the machine's
  std::int64_t skip_bad_rows = 0;    // per epoch
  std::int64_t skip_bad_blocks = 0;  // per epoch

  // The paths of "train", "valid" or "test"; kInvalidArgument when the config has none.
  Result<std::vector<std::string>> split(const std::string& name) const;
};

struct LoopConfig {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;  // 0: until the data ends
  std::uint64_t seed = 1;
  int threads = 0;              // 0: one per core
  std::string device = "auto";  // see device_choice.hpp, as for precision
  std::string precision = "auto";
  bool graph = true;  // on the GPU: a step is launched as one graph
  bool overlap = true;
  std::int64_t log_every = 10;
  std::int64_t max_bad_steps = 10;  // non-finite steps in a row that stop the run
  std::string init_from;            // run, checkpoint or exported file to begin with; may be empty
  std::vector<std::string> init_except;  // patterns of tensor names that are not taken from it
};

struct EvalConfig {
  std::int64_t every_steps = 0;  // 0: never during training
  std::string split = "valid";
  int bootstrap = 200;  // resamples for the confidence intervals
  int ndcg_k = 10;
};

struct CheckpointConfig {
  std::string dir;  // <run>/checkpoints
  std::int64_t every_steps = 0;
  double every_seconds = 600;
  int keep_last = 3;
  std::int64_t keep_every = 0;  // steps; 0: keep_last alone
  bool background = true;       // written by a thread while training goes on
  bool skip_when_busy = false;  // false: a save waits for the one before
  int fail_after = 3;           // failed saves in a row that end the run
  std::int64_t table_deltas = 0;
  std::int64_t shard_bytes = std::int64_t{1} << 30;
  double finish_limit_s = 600;
};

struct TrainConfig {
  std::string run_dir;
  features::Schema schema;
  features::BatchLimits limits;
  model::ModelConfig model;
  DataConfig data;
  LoopConfig loop;
  OptimizerConfig optimizer;
  Schedule schedule;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  std::string resolved;                                     // TOML of all values used
  std::vector<std::pair<std::string, std::string>> values;  // the same as key, value

  // Reads every section and refuses unknown keys.
  static Result<TrainConfig> from_config(Config& config);
  int threads() const;
  data::BatchPipelineOptions pipeline_options() const;
  data::SourceOptions source_options() const;
};

// What a changed key means when a run goes on (design: keys at a resume).
enum class KeyClass : std::uint8_t {
  kFree,      // changes nothing but speed: said nothing about
  kReported,  // allowed and logged
  kFixed,     // refused, naming it, unless asked for
};
KeyClass key_class(std::string_view key);

struct KeyChange {
  std::string key, was, is;
  KeyClass what = KeyClass::kFree;
};
// Refuses fixed keys that differ, naming all of them; logs reported ones. `run` is for the message.
Result<void> check_keys(const std::string& run, const std::vector<KeyChange>& changes,
                        bool allow_fixed);

// Keys whose values differ between the run that was saved and this config, free ones left out.
std::vector<KeyChange> changed_keys(const std::vector<std::pair<std::string, std::string>>& saved,
                                    const std::vector<std::pair<std::string, std::string>>& now);

}  // namespace paceline::train
