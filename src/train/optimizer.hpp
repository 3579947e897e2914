// The two optimizers of a step: AdamW on the dense parameters, row-wise AdaGrad on table rows.
//
// Both updates of a step are applied, or neither: a non-finite loss or gradient drops both by one
// flag, and Adam's step count stays. The global-norm clip covers the dense gradient.
#pragma once

#include <cstdint>
#include <span>

#include "core/config.hpp"
#include "core/error.hpp"
#include "model/parameters.hpp"
#include "ops/op_table.hpp"
#include "train/model_state.hpp"

namespace paceline::train {

struct OptimizerConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // on matrices
  double clip = 1.0;           // of the dense gradient's global norm; 0: off
  double table_lr = 0.1;
  double table_eps = 1e-10;

  // Section [optimizer].
  static Result<OptimizerConfig> from_config(Config& config);
};

struct StepGradients {
  std::span<const float> dense;
  std::span<const float> table_rows;      // [lookups, table_width]
  std::span<const std::int32_t> lookups;  // table row of each, -1 missing
};

struct StepOutcome {
  bool applied = false;
  double grad_norm = 0.0;  // of the dense gradient, before the clip
};

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, const model::ParameterLayout& layout,
            const ops::OpTable& ops, std::int64_t max_lookups);

  // `factor` is the schedule's, applied to both learning rates.
  StepOutcome step(ops::Context& ctx, ModelState& state, const StepGradients& gradients,
                   double loss, double factor);

 private:
  OptimizerConfig config_;
  const model::ParameterLayout* layout_;
  const ops::OpTable* ops_;
  ops::TableRowIndex index_;
};

}  // namespace paceline::train
