// RMSNorm over all heads of a query or key row, then RoPE on each head (half-split rotation).
//
// x [rows, heads * head_dim] with stride x_stride, scale [heads * head_dim], positions [rows];
// y dense. For channel pair (i, i + head_dim / 2) of each head, angle = position * base^(-2 i /
// head_dim) (Su et al., RoFormer, 2021); RopeTable holds cos and sin, [max_position][head_dim / 2]
// each, made by rope_table. Backward: dx has stride dx_stride and is overwritten, dscale is
// accumulated.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/context.hpp"

namespace paceline::ops {

struct RopeTable {
  std::int64_t max_position = 0;
  int head_dim = 0;
  std::vector<float> cos, sin;  // [max_position, head_dim / 2]
};
RopeTable rope_table(std::int64_t max_position, int head_dim, double base);

struct NormRopeArgs {
  std::int64_t rows = 0;
  int heads = 0;
  int head_dim = 0;
  float eps = 1e-5F;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const float* scale = nullptr;
  const std::int32_t* positions = nullptr;
  const RopeTable* rope = nullptr;
  float* y = nullptr;        // [rows, heads * head_dim]
  float* inv_rms = nullptr;  // [rows]
};

struct NormRopeGradArgs {
  std::int64_t rows = 0;
  int heads = 0;
  int head_dim = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const float* scale = nullptr;
  const std::int32_t* positions = nullptr;
  const RopeTable* rope = nullptr;
  const float* inv_rms = nullptr;
  const float* dy = nullptr;  // [rows, heads * head_dim]
  float* dx = nullptr;
  std::int64_t dx_stride = 0;
  float* dscale = nullptr;  // accumulated
};

void norm_rope_cpu(Context& ctx, const NormRopeArgs& args);
void norm_rope_grad_cpu(Context& ctx, const NormRopeGradArgs& args);

}  // namespace paceline::ops
