#include <cuda_runtime.h>

#include "core/error.hpp"
#include "ops/adamw/adamw_cuda.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 4;      // elements of an access
constexpr int kInFlight = 2;  // accesses to each array that a thread has in flight
constexpr std::int64_t kBlock = std::int64_t{kThreads} * kWide * kInFlight;

struct Factors {
  float beta1, beta2, rest1, rest2, eps, decay;
  float scale, step, spread;

  template <typename T>
  __device__ explicit Factors(const AdamWCudaArgs<T>& a)
      : beta1(static_cast<float>(a.beta1)),
        beta2(static_cast<float>(a.beta2)),
        rest1(static_cast<float>(1.0 - a.beta1)),
        rest2(static_cast<float>(1.0 - a.beta2)),
        eps(static_cast<float>(a.eps)),
        decay(static_cast<float>(a.decision->lr * a.weight_decay)),
        scale(a.decision->grad_scale),
        step(a.decision->step),
        spread(a.decision->spread) {}
};

__device__ void update(const Factors& f, float grad, bool decays, float& p, float& m, float& v) {
  const float g = grad * f.scale;
  m = fmaf(f.beta1, m, f.rest1 * g);
  v = fmaf(f.beta2, v, f.rest2 * (g * g));
  const float change = f.step * m / fmaf(sqrtf(v), f.spread, f.eps);
  p -= decays ? fmaf(f.decay, p, change) : change;
}

__device__ void store1(float* to, float x) { *to = x; }
__device__ void store1(device::BFloat16* to, float x) {
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ void store4(float* to, float4 x) { *reinterpret_cast<float4*>(to) = x; }
__device__ void store4(device::BFloat16* to, float4 x) {
  union {
    uint2 raw;
    __nv_bfloat162 pairs[2];
  } out;
  out.pairs[0] = __float22bfloat162_rn(make_float2(x.x, x.y));
  out.pairs[1] = __float22bfloat162_rn(make_float2(x.z, x.w));
  *reinterpret_cast<uint2*>(to) = out.raw;
}
__device__ float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }

// The elements from `first` on that are fewer than an access.
template <typename T>
__device__ void update_tail(const AdamWCudaArgs<T>& a, const Factors& f, std::int64_t first) {
  for (std::int64_t i = first; i < a.n; ++i) {
    update(f, a.grad[i], i < a.decay_end, a.p[i], a.m[i], a.v[i]);
    if (a.shadow != nullptr) store1(a.shadow + i, a.p[i]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ AdamWCudaArgs<T> a) {
  if (a.decision->applied == 0) return;
  const Factors f(a);
  const std::int64_t first = blockIdx.x * kBlock + threadIdx.x * kWide;
  float4 g[kInFlight], p[kInFlight], m[kInFlight], v[kInFlight];
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = first + k * kThreads * kWide;
    if (i + kWide > a.n) continue;
    g[k] = load4(a.grad + i);
    p[k] = load4(a.p + i);
    m[k] = load4(a.m + i);
    v[k] = load4(a.v + i);
  }
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t i = first + k * kThreads * kWide;
    if (i + kWide > a.n) {
      update_tail(a, f, i);
      break;
    }
    update(f, g[k].x, i < a.decay_end, p[k].x, m[k].x, v[k].x);
    update(f, g[k].y, i + 1 < a.decay_end, p[k].y, m[k].y, v[k].y);
    update(f, g[k].z, i + 2 < a.decay_end, p[k].z, m[k].z, v[k].z);
    update(f, g[k].w, i + 3 < a.decay_end, p[k].w, m[k].w, v[k].w);
    store4(a.p + i, p[k]);
    store4(a.m + i, m[k]);
    store4(a.v + i, v[k]);
    if (a.shadow != nullptr) store4(a.shadow + i, p[k]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    shadow_kernel(std::int64_t n, const float* p, T* shadow) {
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (first + kWide <= n) return store4(shadow + first, load4(p + first));
  for (std::int64_t i = first; i < n; ++i) store1(shadow + i, p[i]);
}

unsigned blocks_of(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

template <typename T>
void adamw_cuda(const device::Stream& stream, const AdamWCudaArgs<T>& args) {
  PL_CHECK(args.decay_end >= 0 && args.decay_end <= args.n, "what decays is part of the array");
  if (args.n == 0) return;
  adamw_kernel<T><<<blocks_of(args.n, kBlock), kThreads, 0, raw(stream)>>>(args);
  device::launched("adamw", stream);
}

template <typename T>
void shadow_cuda(const device::Stream& stream, std::int64_t n, const float* p, T* shadow) {
  if (n == 0) return;
  shadow_kernel<T>
      <<<blocks_of(n, std::int64_t{kThreads} * kWide), kThreads, 0, raw(stream)>>>(n, p, shadow);
  device::launched("shadow", stream);
}

template void adamw_cuda(const device::Stream&, const AdamWCudaArgs<float>&);
template void adamw_cuda(const device::Stream&, const AdamWCudaArgs<device::BFloat16>&);
template void shadow_cuda(const device::Stream&, std::int64_t, const float*, float*);
template void shadow_cuda(const device::Stream&, std::int64_t, const float*, device::BFloat16*);

}  // namespace paceline::ops
