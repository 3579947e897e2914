// AdamW (Loshchilov and Hutter, 2019) on flat arrays, in place.
//   g = grad_scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p = p - lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p)
// t counts from 1. Element-wise, so deterministic at any thread count.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

struct AdamWArgs {
  std::int64_t n = 0;
  float* p = nullptr;
  const float* grad = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  std::int64_t t = 1;
  double lr = 0.0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double grad_scale = 1.0;
};

void adamw_cpu(Context& ctx, const AdamWArgs& args);

}  // namespace paceline::ops
