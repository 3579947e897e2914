#include "ops/gelu/gelu_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

__device__ float value(float x) {
  return 0.5F * x * (1.0F + tanhf(kRoot * (x + kCubic * x * x * x)));
}
__device__ float slope(float x) {
  const float t = tanhf(kRoot * (x + kCubic * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kRoot * (1.0F + 3.0F * kCubic * x * x);
}

// One thread, one vector.
template <typename T, bool kGrad>
__global__ void __launch_bounds__(kThreads)
    gelu_kernel(std::int64_t vectors, const T* x, const T* dy, T* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  float v[kVector], d[kVector];
  load8(x + i * kVector, v);
  if constexpr (kGrad) load8(dy + i * kVector, d);
#pragma unroll
  for (int j = 0; j < kVector; ++j) v[j] = kGrad ? d[j] * slope(v[j]) : value(v[j]);
  store8(out + i * kVector, v);
}

template <typename T, bool kGrad>
void launch(const device::Stream& stream, std::int64_t n, const T* x, const T* dy, T* out) {
  PL_CHECK(n % kVector == 0, "whole vectors");
  if (n == 0) return;
  const std::int64_t vectors = n / kVector;
  const auto blocks = static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
  gelu_kernel<T, kGrad>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(vectors, x, dy, out);
  device::launched(kGrad ? "gelu_grad" : "gelu", stream);
}

}  // namespace

template <typename T>
void gelu_cuda(const device::Stream& stream, std::int64_t n, const T* x, T* y) {
  launch<T, false>(stream, n, x, nullptr, y);
}
template <typename T>
void gelu_grad_cuda(const device::Stream& stream, std::int64_t n, const T* x, const T* dy, T* dx) {
  launch<T, true>(stream, n, x, dy, dx);
}

template void gelu_cuda(const device::Stream&, std::int64_t, const float*, float*);
template void gelu_cuda(const device::Stream&, std::int64_t, const device::BFloat16*,
                        device::BFloat16*);
template void gelu_grad_cuda(const device::Stream&, std::int64_t, const float*, const float*,
                             float*);
template void gelu_grad_cuda(const device::Stream&, std::int64_t, const device::BFloat16*,
                             const device::BFloat16*, device::BFloat16*);

}  // namespace paceline::ops
