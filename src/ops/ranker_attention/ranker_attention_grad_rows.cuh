// What the backward pass of the ranker attention does row by row, for either number type: delta of
// every query, dk and dv of the candidates (only they read themselves), zeros past the last row.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/ranker_attention/ranker_attention_cuda.cuh"

namespace paceline::ops::attention {

inline constexpr int kRowWarps = 8;      // rows of a block, a warp each
inline constexpr int kRowPairs = 2;      // pairs of columns of a lane
inline constexpr int kMaxHeadDim = 128;  // = 32 lanes x kRowPairs x 2

// Calls f(i, c) for the lane's pairs of columns c, c + 1.
template <typename F>
__device__ inline void for_pairs(int head_dim, F&& f) {
#pragma unroll
  for (int i = 0; i < kRowPairs; ++i) {
    const int c = 2 * (static_cast<int>(threadIdx.x % 32) + 32 * i);
    if (c < head_dim) f(i, c);
  }
}

template <typename T>
__device__ inline float warp_product(const T* x, const T* y, int head_dim) {
  float sum = 0.0F;
  for_pairs(head_dim, [&](int, int c) {
    const float2 a = load2(x + c);
    const float2 b = load2(y + c);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  });
  return warp_sum(sum);
}

// One warp: a query and the heads of a key head's group, in their order.
template <typename T>
__device__ void grad_row(const AttentionGradCudaArgs<T>& g, const GpuExample& e, int query) {
  const AttentionCudaArgs<T>& a = g.forward;
  const AttentionCudaShape& s = a.shape;
  const int dim = s.head_dim;
  const int group = s.query_heads / s.key_heads;
  const int key_head = static_cast<int>(blockIdx.y);
  const std::int64_t at = e.first_query + query;
  const bool candidate = query + e.row_of_query >= e.keys;
  const std::int64_t row = e.first_row + query + e.row_of_query;
  const GpuLogit<float, true> logit(s);
  float2 dk[kRowPairs] = {};
  float2 dv[kRowPairs] = {};
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    const T* d_o = g.d_o + at * g.do_stride + h * dim;
    const float delta = warp_product(d_o, a.o + at * a.o_stride + h * dim, dim);
    if (threadIdx.x % 32 == 0) g.delta[at * s.query_heads + h] = delta;
    if (!candidate) continue;
    const T* q = a.q + at * a.q_stride + h * dim;
    float slope;
    const float x =
        logit.with_slope(warp_product(q, a.k + row * a.k_stride + key_head * dim, dim), slope);
    const float p = exp2f(x - a.lse[at * s.query_heads + h] * kLog2EGpu);
    const float dp = warp_product(d_o, a.v + row * a.v_stride + key_head * dim, dim);
    const float ds = p * slope * (dp - delta) * s.scale;
    for_pairs(dim, [&](int i, int c) {
      const float2 qc = load2(q + c);
      const float2 oc = load2(d_o + c);
      dk[i] = {fmaf(ds, qc.x, dk[i].x), fmaf(ds, qc.y, dk[i].y)};
      dv[i] = {fmaf(p, oc.x, dv[i].x), fmaf(p, oc.y, dv[i].y)};
    });
  }
  if (!candidate) return;
  for_pairs(dim, [&](int i, int c) {
    store2(g.dk + row * g.dk_stride + key_head * dim + c, dk[i]);
    store2(g.dv + row * g.dv_stride + key_head * dim + c, dv[i]);
  });
}

template <typename T>
__global__ void __launch_bounds__(32 * kRowWarps)
    grad_rows_kernel(const __grid_constant__ AttentionGradCudaArgs<T> g) {
  const AttentionCudaShape& s = g.forward.shape;
  if (blockIdx.z == static_cast<unsigned>(s.max_examples)) {
    const std::int64_t rows = s.cu_rows[s.max_examples];
    zero_rows(g.dk, g.dk_stride, s.key_heads * s.head_dim, rows, s.row_capacity);
    zero_rows(g.dv, g.dv_stride, s.key_heads * s.head_dim, rows, s.row_capacity);
    zero_rows(g.dq, g.dq_stride, s.query_heads * s.head_dim,
              s.candidates_only ? s.cu_candidates[s.max_examples] : rows,
              s.candidates_only ? s.candidate_capacity : s.row_capacity);
    return;
  }
  const GpuExample e(s, blockIdx.z);
  const int query = static_cast<int>(blockIdx.x * kRowWarps + threadIdx.x / 32);
  if (query < e.queries) grad_row(g, e, query);
}

template <typename T>
void launch_grad_rows(const device::Stream& stream, const AttentionGradCudaArgs<T>& args) {
  const AttentionCudaShape& s = args.forward.shape;
  grad_rows_kernel<T>
      <<<grid_of(s, max_queries(s), kRowWarps, s.key_heads), 32 * kRowWarps, 0, raw(stream)>>>(
          args);
  device::launched("ranker_attention_grad_rows", stream);
}

}  // namespace paceline::ops::attention
