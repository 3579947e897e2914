// Losses on candidate logits, with their gradients in one pass.
//
// logits, d_logits [candidates, outputs] dense fp32. Column a < actions is the logit z of action a,
// label t = bit bits[a] of labels:
//   cross-entropy  max(z, 0) - z t + log(1 + e^-|z|);  gradient sigmoid(z) - t
// column actions + r is regression head r with target t = clip(target, 0, cap):
//   kSigmoidMae    |sigmoid(z) - t / cap|
//   kTweedie       mu = max(cap tanh(softplus(z) / cap), 1e-6); the deviance with power p = 1.5,
//                  2 (t^(2-p) / ((1-p)(2-p)) - t mu^(1-p) / (1-p) + mu^(2-p) / (2-p))
//                  = 4 (sqrt(mu) - sqrt(t))^2 / sqrt(mu);  gradient by mu 2 (mu - t) / mu^1.5,
//                  and 0 where mu stands at its floor (Dunn and Smyth, 2005)
// loss = sum of all terms times their weights / candidates. A weight of 0: not trained, its column
// is not read and its gradient is 0. Sums are fp64 over fixed chunks in order. candidates = 0 gives
// loss 0. A logit or target that is not finite gives a loss that is not finite.
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
  double* by_output = nullptr;            // [actions + heads], shares of the loss, may be null
};

double loss_cpu(Context& ctx, const LossArgs& args);

}  // namespace paceline::ops
