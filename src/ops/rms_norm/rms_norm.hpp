// RMSNorm over rows: y = x * r * scale, r = 1 / sqrt(mean(x^2) + eps)   (Zhang and Sennrich, 2019).
//
// x, y [rows, width] dense fp32, scale [width]. inv_rms [rows] is written forward and read
// backward. Backward: dx (+= when accumulate) and dscale (always +=, fixed chunk order). y may
// alias x forward; dx must not alias dy.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

struct RmsNormArgs {
  std::int64_t rows = 0;
  int width = 0;
  float eps = 1e-5F;
  const float* x = nullptr;
  const float* scale = nullptr;
  float* y = nullptr;
  float* inv_rms = nullptr;  // [rows]
};

struct RmsNormGradArgs {
  std::int64_t rows = 0;
  int width = 0;
  const float* x = nullptr;
  const float* scale = nullptr;
  const float* inv_rms = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;
  bool accumulate = false;
  float* dscale = nullptr;  // [width], accumulated
};

void rms_norm_cpu(Context& ctx, const RmsNormArgs& args);
void rms_norm_grad_cpu(Context& ctx, const RmsNormGradArgs& args);

}  // namespace paceline::ops
