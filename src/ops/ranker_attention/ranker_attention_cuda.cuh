// What the kernels of the ranker attention share: one example's rows, logits, values of either
// number type, tails. Contract: ranker_attention_cuda.hpp.
//
// Grids are (tiles, heads, examples + 1): the last plane writes the zeros past the last row.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "core/error.hpp"
#include "ops/ranker_attention/ranker_attention_cuda.hpp"

namespace paceline::ops::attention {

using device::BFloat16;

inline constexpr float kLog2EGpu = 1.44269504088896340736F;
inline constexpr float kLn2Gpu = 0.693147180559945309417F;

// One example's rows, as counted from the start of the packed arrays.
struct GpuExample {
  std::int64_t first_row = 0;
  int keys = 0;  // N: its rows but the candidates
  std::int64_t first_query = 0;
  int queries = 0;
  int row_of_query = 0;  // row in the example of its query 0

  __device__ GpuExample(const AttentionCudaShape& s, unsigned b) {
    first_row = s.cu_rows[b];
    const int rows = s.cu_rows[b + 1] - s.cu_rows[b];
    const int candidates = s.cu_candidates[b + 1] - s.cu_candidates[b];
    keys = rows - candidates;
    first_query = s.candidates_only ? s.cu_candidates[b] : first_row;
    queries = s.candidates_only ? candidates : rows;
    row_of_query = s.candidates_only ? keys : 0;
  }
  // Keys that a row reads among the first `keys` rows.
  __device__ int keys_read(bool causal, int row) const {
    return causal && row < keys ? row + 1 : keys;
  }
};

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, step));
  return x;
}

// Two neighbouring values.
__device__ inline float2 load2(const float* at) { return *reinterpret_cast<const float2*>(at); }
__device__ inline float2 load2(const BFloat16* at) {
  const std::uint32_t x = *reinterpret_cast<const std::uint32_t*>(at);
  return {__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000U)};
}
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
__device__ inline void store2(float* at, float2 x) { *reinterpret_cast<float2*>(at) = x; }
__device__ inline void store2(BFloat16* at, float2 x) {
  *reinterpret_cast<std::uint32_t*>(at) = pack(x.x, x.y);
}

// Within 2 ulp; tensor core kernels take the instruction, that flushes results below 2^-126.
template <typename T>
__device__ inline float exp2_of(float x) {
  if constexpr (sizeof(T) == sizeof(float)) return exp2f(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// BFloat16: within 2e-7 absolute.
template <typename T>
__device__ inline float tanh_of(float x) {
  if constexpr (sizeof(T) == sizeof(float)) return tanhf(x);
  const float e = exp2_of<T>(fabsf(x) * (2.0F * kLog2EGpu));
  return copysignf(1.0F - __fdividef(2.0F, e + 1.0F), x);
}

// The logit of a raw product q . k, in log2 units (times log2 e), so that softmax is exp2.
// kCapped false: kNone only.
template <typename T, bool kCapped>
struct GpuLogit {
  SoftCap kind;
  float in;   // product -> logit in units of the cap (kNone: in log2 units at once)
  float out;  // units of the cap -> log2 units

  __device__ explicit GpuLogit(const AttentionCudaShape& s)
      : kind(s.cap_kind), in(s.scale * kLog2EGpu), out(s.cap * kLog2EGpu) {
    if (kCapped && kind != SoftCap::kNone) in = s.scale / s.cap;
  }
  __device__ float operator()(float product) const {
    float slope;
    return with_slope(product, slope);
  }
  // slope: derivative of the capped by the uncapped logit.
  __device__ float with_slope(float product, float& slope) const {
    const float x = product * in;
    if (kCapped && kind == SoftCap::kTanh) {
      const float t = tanh_of<T>(x);
      slope = fmaf(-t, t, 1.0F);
      return t * out;
    }
    if (kCapped && kind == SoftCap::kSoftSign) {
      const float r = 1.0F / (1.0F + fabsf(x));
      slope = r * r;
      return x * r * out;
    }
    slope = 1.0F;
    return x;
  }
};

// Zeros in rows [from, to) of an array, by all threads of a grid's last plane.
template <typename T>
__device__ void zero_rows(T* at, std::int64_t stride, int width, std::int64_t from,
                          std::int64_t to) {
  const auto chunks = static_cast<std::int64_t>(width * sizeof(T) / sizeof(uint4));
  const std::int64_t threads = std::int64_t{gridDim.x} * gridDim.y * blockDim.x;
  std::int64_t i = (std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < (to - from) * chunks; i += threads)
    reinterpret_cast<uint4*>(at + (from + i / chunks) * stride)[i % chunks] = uint4{};
}

// Zeros o and lse past the last query.
template <typename T>
__device__ void zero_tail(const AttentionCudaArgs<T>& a) {
  const AttentionCudaShape& s = a.shape;
  const std::int64_t end = (s.candidates_only ? s.cu_candidates : s.cu_rows)[s.max_examples];
  const std::int64_t capacity = s.candidates_only ? s.candidate_capacity : s.row_capacity;
  zero_rows(a.o, a.o_stride, s.query_heads * s.head_dim, end, capacity);
  const std::int64_t threads = std::int64_t{gridDim.x} * gridDim.y * blockDim.x;
  std::int64_t i = end * s.query_heads +
                   (std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < capacity * s.query_heads; i += threads) a.lse[i] = 0.0F;
}

inline int max_queries(const AttentionCudaShape& s) {
  return s.candidates_only ? s.max_candidates : s.max_rows;
}

// At least one tile, so that the last plane is there.
inline dim3 grid_of(const AttentionCudaShape& s, int rows, int tile, int heads) {
  return {static_cast<unsigned>(std::max(1, (rows + tile - 1) / tile)),
          static_cast<unsigned>(heads), static_cast<unsigned>(s.max_examples + 1)};
}

inline cudaStream_t raw(const device::Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

inline void check_shape(const AttentionCudaShape& s) {
  PL_CHECK(s.key_heads > 0 && s.query_heads > 0 && s.query_heads % s.key_heads == 0,
           "query_heads is a multiple of key_heads");
  PL_CHECK(s.cap_kind == SoftCap::kNone || s.cap > 0.0F, "a soft cap is positive");
  PL_CHECK(s.max_examples >= 0 && s.max_examples < 65535, "at most 65534 examples (grid planes)");
}

}  // namespace paceline::ops::attention
