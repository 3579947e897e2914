// RMSNorm over all heads and RoPE on the GPU (formulas: norm_rope.hpp), values of T = BFloat16 or
// float, sums in fp32. A row's result depends on that row alone. heads * head_dim at most 8192,
// head_dim a multiple of 16; strides in elements, multiples of 8; pointers 32-byte aligned.
// Deterministic: dscale is summed in an order that the shape alone fixes.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "ops/rms_norm/rms_norm_cuda.hpp"

namespace paceline::ops {

struct RopeTableCuda {
  const float* cos = nullptr;  // [max_position, head_dim / 2], as RopeTable
  const float* sin = nullptr;
};

template <typename T>
struct NormRopeCudaArgs {
  std::int64_t rows = 0;
  int heads = 0;
  int head_dim = 0;
  float eps = 1e-5F;
  const T* x = nullptr;
  std::int64_t x_stride = 0;
  const float* scale = nullptr;             // [heads * head_dim]
  const std::int32_t* positions = nullptr;  // [rows]
  RopeTableCuda rope;
  T* y = nullptr;            // [rows, heads * head_dim]
  float* inv_rms = nullptr;  // [rows]
};
template <typename T>
void norm_rope_cuda(const device::Stream& stream, const NormRopeCudaArgs<T>& args);

template <typename T>
struct NormRopeGradCudaArgs {
  std::int64_t rows = 0;
  int heads = 0;
  int head_dim = 0;
  const T* x = nullptr;
  std::int64_t x_stride = 0;
  const float* scale = nullptr;
  const std::int32_t* positions = nullptr;
  RopeTableCuda rope;
  const float* inv_rms = nullptr;
  const T* dy = nullptr;  // [rows, heads * head_dim]
  T* dx = nullptr;
  std::int64_t dx_stride = 0;
  float* dscale = nullptr;    // [heads * head_dim], overwritten
  float* partials = nullptr;  // scratch [kNormPartials, heads * head_dim]
};
template <typename T>
void norm_rope_grad_cuda(const device::Stream& stream, const NormRopeGradCudaArgs<T>& args);

}  // namespace paceline::ops
