// With u = sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh u) / 2 = 1 / (1 + e^-2u) = s, so y = x s and
// y' = s + x (1 - s) s 2u', where 1 - s = e^-2u s loses no digits for large x.
#include "ops/gelu/gelu_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 2;  // vectors of an array that a thread loads at once
constexpr std::int64_t kBlock = std::int64_t{kThreads} * kInFlight;
constexpr float kTwoRoot2OverPi = 1.59576912160573071F;  // 2 sqrt(2 / pi)
constexpr float kLog2E = 1.44269504088896341F;
constexpr float kCubic = 0.044715F;
constexpr float kMaxExponent = 120.0F;  // 1 + 2^120 has a quick inverse

// Beyond +-16 the gate is shut or open to the last bit (0 times -inf is NaN); NaN stays NaN.
struct Gate {
  float x, x2, e, s;  // x within +-16, its square, e^-2u, s
  __device__ explicit Gate(float v) : x(v > 16.0F ? 16.0F : (v < -16.0F ? -16.0F : v)), x2(x * x) {
    const float exponent = -kTwoRoot2OverPi * kLog2E * x * fmaf(kCubic, x2, 1.0F);
    e = exp2f(exponent > kMaxExponent ? kMaxExponent : exponent);
    s = v < -16.0F ? 0.0F : __fdividef(1.0F, 1.0F + e);
  }
};

__device__ float value(float x) { return x * Gate(x).s; }
__device__ float slope(float x) {
  const Gate gate(x);
  const float rest = gate.e * gate.s;  // 1 - s
  const float by_x = kTwoRoot2OverPi * fmaf(3.0F * kCubic, gate.x2, 1.0F);
  return fmaf(gate.x * rest * by_x, gate.s, gate.s);
}

template <typename T, bool kGrad>
__global__ void __launch_bounds__(kThreads)
    gelu_kernel(std::int64_t vectors, const T* x, const T* dy, T* out) {
  const std::int64_t first = blockIdx.x * kBlock + threadIdx.x;
  Packed8<T> xs[kInFlight], dys[kInFlight];
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i >= vectors) continue;
    xs[k] = load_packed(x + i * kVector);
    if constexpr (kGrad) dys[k] = load_packed(dy + i * kVector);
  }
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i >= vectors) continue;
    float v[kVector], d[kVector];
    unpack(xs[k], v);
    if constexpr (kGrad) unpack(dys[k], d);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] = kGrad ? d[j] * slope(v[j]) : value(v[j]);
    store8(out + i * kVector, v);
  }
}

template <typename T, bool kGrad>
void launch(const device::Stream& stream, std::int64_t n, const T* x, const T* dy, T* out) {
  PL_CHECK(n >= 0 && n % kVector == 0, "GELU takes a multiple of 8 elements");
  if (n == 0) return;
  const std::int64_t vectors = n / kVector;
  const auto blocks = static_cast<unsigned>((vectors + kBlock - 1) / kBlock);
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  gelu_kernel<T, kGrad><<<blocks, kThreads, 0, raw>>>(vectors, x, dy, out);
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
