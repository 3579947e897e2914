// The GPU's side of step_engine.hpp and scorer.hpp.
#pragma once

#include <memory>
#include <string>

#include "core/error.hpp"
#include "train/scorer.hpp"
#include "train/step_engine.hpp"

namespace paceline::train {

// For a device chosen by choose_device(), which chooses none where no CUDA code is compiled in.
Result<std::unique_ptr<StepEngine>> make_cuda_engine(const StepEngineOptions& options);
Result<std::unique_ptr<Scorer>> make_cuda_scorer(const ScorerOptions& options);
std::string cuda_engine_name(const DeviceChoice& device);

}  // namespace paceline::train
