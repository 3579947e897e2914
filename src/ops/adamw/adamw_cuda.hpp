// AdamW on the GPU (formulas: adamw.hpp): one launch over the flat array, with the factors that
// step_decide_cuda left on the device. Not applied: nothing is written. T is BFloat16 or float.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "ops/step_decide/step_decide_cuda.hpp"

namespace paceline::ops {

// Arrays of n, each 32-byte aligned.
template <typename T>
struct AdamWCudaArgs {
  std::int64_t n = 0;
  std::int64_t decay_end = 0;  // elements [0, decay_end) decay
  float* p = nullptr;
  const float* grad = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  T* shadow = nullptr;  // p rounded to T; null: none is kept
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  const StepDecision* decision = nullptr;  // device
};
template <typename T>
void adamw_cuda(const device::Stream& stream, const AdamWCudaArgs<T>& args);

// shadow = p rounded to T: for weights that a step did not write, as those of a checkpoint.
template <typename T>
void shadow_cuda(const device::Stream& stream, std::int64_t n, const float* p, T* shadow);

}  // namespace paceline::ops
