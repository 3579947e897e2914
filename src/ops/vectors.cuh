// Device code shared by the row-wise kernels: eight values of T as floats in 16- or 32-byte
// accesses, and reductions of a fixed order.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "device/bfloat16.hpp"

namespace paceline::ops {

inline constexpr int kWarp = 32;
inline constexpr int kVector = 8;  // values of one access

// p is aligned to 8 values.
__device__ inline void load8(const float* p, float (&v)[kVector]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0];
  const float4 b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
__device__ inline void store8(float* p, const float (&v)[kVector]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ inline void load8(const device::BFloat16* p, float (&v)[kVector]) {
  union {
    uint4 raw;
    __nv_bfloat162 pairs[4];
  } in;
  in.raw = *reinterpret_cast<const uint4*>(p);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __bfloat1622float2(in.pairs[i]);
    v[2 * i] = f.x;
    v[2 * i + 1] = f.y;
  }
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

}  // namespace paceline::ops
