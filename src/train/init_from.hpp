// Weights of another run as a beginning (train.init_from).
#pragma once

#include "core/error.hpp"
#include "model/parameters.hpp"
#include "train/optimizer.hpp"
#include "train/provenance.hpp"
#include "train/train_config.hpp"

namespace paceline::telemetry {
class Progress;
}

namespace paceline::train {

// Overwrites those tensors of `weights` that config.loop.init_from has, by name: a run directory
// (its newest whole checkpoint; nothing in it is changed), a checkpoint, or an exported file. What
// was taken, left and missing is printed. Optimizer state is not taken.
// kInvalidArgument when it is none of these, or when a tensor has another type or shape than this
// model's, or the table other id features, unless train.init_except names it; kNotFound,
// kCorruptData and kIo of the files. After an error `weights` mean nothing.
Result<Ancestor> take_weights(const TrainConfig& config, const model::ParameterLayout& layout,
                              ModelState& weights, telemetry::Progress& progress);

}  // namespace paceline::train
