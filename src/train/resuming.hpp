// How a run begins: from its newest checkpoint, from the weights of another run, or from nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "model/parameters.hpp"
#include "train/run_state.hpp"
#include "train/train_config.hpp"

namespace paceline::telemetry {
class Progress;
}

namespace paceline::train {

struct Beginning {
  RunState run;                                  // of this process: its build, machine, config
  std::optional<checkpoint::Restored> restored;  // of a resume
  std::vector<KeyChange> changes;                // of a resume: keys that are not free
};

struct BeginningOptions {
  bool allow_changed_keys = false;
  std::string version, commit;    // of the program
  std::string device;             // engine_name()
  std::uint64_t fingerprint = 0;  // of the data
};

// Fills `weights`. Leftovers of saves that were killed are removed and counted. Every checkpoint
// that was passed over is named, and a resume says whether it is bit-identical to a run without an
// interruption. kCorruptData when there are checkpoints and all are broken: starting over would
// forget what was trained, which is not for the program to decide.
Result<Beginning> begin_run(const TrainConfig& config, const BeginningOptions& options,
                            const model::ParameterLayout& layout, ModelState& weights,
                            telemetry::Progress& progress);

}  // namespace paceline::train
