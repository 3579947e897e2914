// Losses on candidate logits and their gradients on the GPU (formulas: loss.hpp). Logits are fp32,
// the gradient is of T = BFloat16 or float, terms are computed in fp32 and summed in fp64 in an
// order that the capacity alone fixes. Pointers are the device's.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "ops/loss/loss.hpp"

namespace paceline::ops {

inline constexpr int kLossPartials = 512;

struct LossHeadsCuda {
  int actions = 0;
  const std::int32_t* bits = nullptr;  // [actions]
  const float* weights = nullptr;      // [actions]
  int targets = 0;
  const RegressionHead* heads = nullptr;  // [targets], `target` is a device pointer
};

// The head's output y [candidates, outputs] becomes logits: y * action_scale for actions, y for
// targets. d_y is the gradient by y; rows past the count and columns past the outputs are zeros.
template <typename T>
struct LossCudaArgs {
  std::int64_t capacity = 0;            // rows of y and d_y
  const std::int32_t* count = nullptr;  // device: candidates of the batch
  LossHeadsCuda heads;
  float action_scale = 1.0F;
  const float* y = nullptr;
  std::int64_t stride = 0;                // of y and d_y, elements
  const std::uint64_t* labels = nullptr;  // [candidates]
  T* d_y = nullptr;
  double* partials = nullptr;  // scratch [kLossPartials]
  double* loss = nullptr;      // [1]
};
template <typename T>
void loss_cuda(const device::Stream& stream, const LossCudaArgs<T>& args);

}  // namespace paceline::ops
