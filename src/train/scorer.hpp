// Scores of batches, on whichever device the weights are.
#pragma once

#include <memory>
#include <span>

#include "core/error.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "ops/context.hpp"
#include "train/device_choice.hpp"
#include "train/model_state.hpp"

namespace paceline::train {

// One call at a time.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // Logits [candidate_tokens, outputs()], actions before targets, valid until the next call. Any
  // batch within the limits. Blocks until they are there.
  virtual std::span<const float> score(const features::Batch& batch) = 0;
  virtual int outputs() const = 0;
};

struct ScorerOptions {
  const model::ModelConfig& model;
  const features::Schema& schema;
  const features::BatchLimits& limits;
  const ModelState& weights;
  ops::Context& ctx;  // of the CPU's ops
  const DeviceChoice& device;
};
// Schema, weights and context must outlive the scorer. kInvalidArgument for sizes that the device
// does not take; kOutOfMemory.
Result<std::unique_ptr<Scorer>> make_scorer(const ScorerOptions& options);

}  // namespace paceline::train
