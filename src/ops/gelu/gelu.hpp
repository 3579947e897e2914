// GELU, tanh approximation: y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
// (Hendrycks and Gimpel, 2016). n elements, fp32. y may alias x; dx may alias dy.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

void gelu_cpu(Context& ctx, std::int64_t n, const float* x, float* y);
void gelu_grad_cpu(Context& ctx, std::int64_t n, const float* x, const float* dy, float* dx);

}  // namespace paceline::ops
