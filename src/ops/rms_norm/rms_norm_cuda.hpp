// RMSNorm on the GPU (formulas: rms_norm.hpp), values of T = BFloat16 or float, sums in fp32.
// A row's result depends on that row alone. width: a multiple of 8, at most 8192; pointers 32-byte
// aligned. Deterministic: dscale is summed in an order that rows and width alone fix.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"

namespace paceline::ops {

template <typename T>
struct RmsNormCudaArgs {
  std::int64_t rows = 0;
  int width = 0;
  float eps = 1e-5F;
  const T* x = nullptr;          // [rows, width]
  const float* scale = nullptr;  // [width]
  T* y = nullptr;                // [rows, width]
  float* inv_rms = nullptr;      // [rows]
};
template <typename T>
void rms_norm_cuda(const device::Stream& stream, const RmsNormCudaArgs<T>& args);

// Rows of a shorter matrix that are added to some rows: row t gets row index[t] - first where that
// is not negative.
template <typename T>
struct ExtraRowsCuda {
  const std::int32_t* index = nullptr;  // [rows]; null: none
  std::int32_t first = 0;
  const T* dy = nullptr;        // [.., width], added to dy before anything else
  const T* residual = nullptr;  // [.., width], added to dx
};

// dx = residual + gradient of the norm;  dscale = sum over rows, overwritten.
template <typename T>
struct RmsNormGradCudaArgs {
  std::int64_t rows = 0;
  int width = 0;
  const T* x = nullptr;
  const float* scale = nullptr;
  const float* inv_rms = nullptr;
  const T* dy = nullptr;
  const T* residual = nullptr;  // [rows, width]; null: zeros; may be dx
  ExtraRowsCuda<T> extra;
  T* dx = nullptr;
  float* dscale = nullptr;    // [width]
  float* partials = nullptr;  // scratch [kNormPartials, width]
};
inline constexpr int kNormPartials = 528;
template <typename T>
void rms_norm_grad_cuda(const device::Stream& stream, const RmsNormGradCudaArgs<T>& args);

}  // namespace paceline::ops
