// Device code shared by the row-wise kernels: eight values of T as floats in 16- or 32-byte
// accesses, and reductions of a fixed order.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "device/bfloat16.hpp"

namespace paceline::ops {

inline constexpr int kWarp = 32;
inline constexpr int kVector = 8;  // values of one access

// Eight values as they lie in memory, in as few registers.
template <typename T>
struct Packed8;
template <>
struct Packed8<float> {
  float4 low, high;
};
template <>
struct Packed8<device::BFloat16> {
  uint4 raw;
};

// p is aligned to 8 values, here and below.
__device__ inline Packed8<float> load_packed(const float* p) {
  return {reinterpret_cast<const float4*>(p)[0], reinterpret_cast<const float4*>(p)[1]};
}
__device__ inline Packed8<device::BFloat16> load_packed(const device::BFloat16* p) {
  return {*reinterpret_cast<const uint4*>(p)};
}
__device__ inline void unpack(const Packed8<float>& from, float (&v)[kVector]) {
  v[0] = from.low.x, v[1] = from.low.y, v[2] = from.low.z, v[3] = from.low.w;
  v[4] = from.high.x, v[5] = from.high.y, v[6] = from.high.z, v[7] = from.high.w;
}
__device__ inline void unpack(const Packed8<device::BFloat16>& from, float (&v)[kVector]) {
  union {
    uint4 raw;
    __nv_bfloat162 pairs[4];
  } in;
  in.raw = from.raw;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __bfloat1622float2(in.pairs[i]);
    v[2 * i] = f.x;
    v[2 * i + 1] = f.y;
  }
}

template <typename T>
__device__ inline void load8(const T* p, float (&v)[kVector]) {
  unpack(load_packed(p), v);
}
__device__ inline void store8(float* p, const float (&v)[kVector]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ inline void store8(device::BFloat16* p, const float (&v)[kVector]) {
  union {
    uint4 raw;
    __nv_bfloat162 pairs[4];
  } out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.pairs[i] = __float22bfloat162_rn(make_float2(v[2 * i], v[2 * i + 1]));
  }
  *reinterpret_cast<uint4*>(p) = out.raw;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  return x;
}
__device__ inline double warp_sum(double x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  return x;
}

// The sum over a block of Threads, in thread 0: lanes of a warp, then warps in order.
template <int Threads>
__device__ double block_sum(double x) {
  __shared__ double warps[Threads / kWarp];
  const double sum = warp_sum(x);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  double total = 0.0;
  if (threadIdx.x == 0) {
    for (const double w : warps) total += w;
  }
  return total;
}

}  // namespace paceline::ops
