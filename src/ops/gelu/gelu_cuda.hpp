// GELU and its gradient on the GPU (formula: gelu.hpp), in fp32 from values of T = BFloat16 or
// float. n elements, a multiple of 8; pointers 32-byte aligned. y may be x; dx may be dy.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"

namespace paceline::ops {

template <typename T>
void gelu_cuda(const device::Stream& stream, std::int64_t n, const T* x, T* y);
template <typename T>
void gelu_grad_cuda(const device::Stream& stream, std::int64_t n, const T* x, const T* dy, T* dx);

}  // namespace paceline::ops
