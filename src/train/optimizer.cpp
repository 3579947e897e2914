#include "train/optimizer.hpp"

#include <cmath>

namespace paceline::train {

Result<OptimizerConfig> OptimizerConfig::from_config(Config& config) {
  OptimizerConfig o;
  const NumberRange positive{.min = 0.0};
  const NumberRange beta{.min = 0.0, .max = 0.9999999};
  PL_TRY(const std::string kind, config.get_choice("optimizer.kind", {"adamw"}, "adamw"));
  PL_TRY(o.lr, config.get_number("optimizer.lr", o.lr, positive));
  PL_TRY(o.beta1, config.get_number("optimizer.beta1", o.beta1, beta));
  PL_TRY(o.beta2, config.get_number("optimizer.beta2", o.beta2, beta));
  PL_TRY(o.eps, config.get_number("optimizer.eps", o.eps, {.min = 1e-30}));
  PL_TRY(o.weight_decay, config.get_number("optimizer.weight_decay", o.weight_decay, positive));
  PL_TRY(o.clip, config.get_number("optimizer.clip", o.clip, positive));
  PL_TRY(o.table_lr, config.get_number("optimizer.table_lr", o.table_lr, positive));
  PL_TRY(o.table_eps, config.get_number("optimizer.table_eps", o.table_eps, {.min = 1e-30}));
  return o;
}

namespace {

std::size_t float_bytes(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }

}  // namespace

ModelState::ModelState(std::int64_t dense_size, std::int64_t rows, int width)
    : table_rows(rows),
      table_width(width),
      dense_(float_bytes(dense_size)),
      adam_m_(float_bytes(dense_size)),
      adam_v_(float_bytes(dense_size)),
      table_(float_bytes(rows * width)),
      table_acc_(float_bytes(rows)) {}

Optimizer::Optimizer(const OptimizerConfig& config, const model::ParameterLayout& layout,
                     const ops::OpTable& ops, std::int64_t max_lookups)
    : config_(config), layout_(&layout), ops_(&ops), index_(max_lookups) {}

StepOutcome Optimizer::step(ops::Context& ctx, ModelState& state, const StepGradients& gradients,
                            double loss, double factor) {
  StepOutcome outcome;
  outcome.grad_norm = ops_->global_norm(ctx, layout_->size(), gradients.dense.data());

  ops_->table_dedup(ctx, static_cast<std::int64_t>(gradients.lookups.size()),
                    gradients.lookups.data(), index_);
  ops::TableAdagradArgs table;
  table.index = &index_;
  table.d_rows = gradients.table_rows.data();
  table.width = state.table_width;
  table.table = state.table().data();
  table.acc = state.table_acc().data();
  table.lr = config_.table_lr * factor;
  table.eps = config_.table_eps;

  outcome.applied = std::isfinite(loss) && std::isfinite(outcome.grad_norm) &&
                    ops_->table_grad_finite(ctx, table);
  if (!outcome.applied) return outcome;

  ++state.adam_steps;
  const bool clipped = config_.clip > 0.0 && outcome.grad_norm > config_.clip;
  ops::AdamWArgs adam;
  adam.t = state.adam_steps;
  adam.lr = config_.lr * factor;
  adam.beta1 = config_.beta1;
  adam.beta2 = config_.beta2;
  adam.eps = config_.eps;
  adam.grad_scale = clipped ? config_.clip / outcome.grad_norm : 1.0;
  const auto update = [&](std::int64_t begin, std::int64_t end, double decay) {
    adam.n = end - begin;
    adam.p = state.dense().data() + begin;
    adam.grad = gradients.dense.data() + begin;
    adam.m = state.adam_m().data() + begin;
    adam.v = state.adam_v().data() + begin;
    adam.weight_decay = decay;
    ops_->adamw(ctx, adam);
  };
  update(0, layout_->decay_end(), config_.weight_decay);
  update(layout_->decay_end(), layout_->size(), 0.0);
  ops_->table_adagrad(ctx, table);
  return outcome;
}

}  // namespace paceline::train
