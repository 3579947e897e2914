// Losses on candidate logits, with their gradients in one pass.
//
// logits, d_logits [candidates, outputs] dense fp32. Column a < actions is the logit of action a:
//   sigmoid cross-entropy of bit[a] of labels, weighted by weight[a] (0: not trained);
// column actions + r is regression head r with targets[r] [candidates] (ranker facts A6):
//   kSigmoidMae: |sigmoid(z) - clip(t, 0, cap) / cap|
//   kTweedie:    deviance with p = 1.5 of mu = max(cap * tanh(softplus(z) / cap), 1e-6) against
//   clip(t, 0, cap)
// loss = sum of all terms / candidates. d_logits is its gradient. Sums are fp64 over fixed chunks
// in order. by_output [outputs]: each column's share of the loss. candidates = 0 gives loss 0.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.hpp"

namespace paceline::ops {

enum class RegressionLoss : std::uint8_t { kSigmoidMae, kTweedie };

struct RegressionHead {
  RegressionLoss loss = RegressionLoss::kSigmoidMae;
  float cap = 30.0F;
  float weight = 0.1F;
  const float* target = nullptr;  // [candidates]
};

struct LossArgs {
  std::int64_t candidates = 0;
  int actions = 0;
  std::span<const int> bits;       // [actions]
  std::span<const float> weights;  // [actions]
  std::span<const RegressionHead> heads;
  const float* logits = nullptr;
  const std::uint64_t* labels = nullptr;  // [candidates]
  float* d_logits = nullptr;              // may be null: loss only
  double* by_output = nullptr;            // [actions + heads], may be null
};

double loss_cpu(Context& ctx, const LossArgs& args);

}  // namespace paceline::ops
