// The ranker attention in fp32 on the GPU, plain: a warp per row and head, 32 rows of the other
// side at a time, one per lane for the logits, then one after the other for the sums.
#include <cmath>

#include "ops/ranker_attention/ranker_attention_grad_rows.cuh"

namespace paceline::ops {
namespace {

using namespace attention;  // NOLINT: the private half of this op

constexpr int kThreads = 32 * kRowWarps;

using RowSum = float2[kRowPairs];               // the lane's pairs of columns
using Rows = float[kRowWarps][2][kMaxHeadDim];  // two rows of each warp, in shared memory

__device__ int lane_id() { return static_cast<int>(threadIdx.x % 32); }
__device__ int warp_id() { return static_cast<int>(threadIdx.x / 32); }

__device__ void keep_row(float* to, const float* from, int head_dim) {
  for (int c = lane_id(); c < head_dim; c += 32) to[c] = from[c];
  __syncwarp();
}

// One lane's product with a row in global memory.
__device__ float product(const float* kept, const float* row, int head_dim) {
  float sum = 0.0F;
  for (int c = 0; c < head_dim; c += 4) {
    const float4 x = *reinterpret_cast<const float4*>(row + c);
    sum = fmaf(kept[c], x.x, sum);
    sum = fmaf(kept[c + 1], x.y, sum);
    sum = fmaf(kept[c + 2], x.z, sum);
    sum = fmaf(kept[c + 3], x.w, sum);
  }
  return sum;
}

__device__ void add_scaled(float a, const float* row, int head_dim, RowSum& sum) {
  for_pairs(head_dim, [&](int i, int c) {
    const float2 x = load2(row + c);
    sum[i] = {fmaf(a, x.x, sum[i].x), fmaf(a, x.y, sum[i].y)};
  });
}

__device__ void store_scaled(float a, const RowSum& sum, int head_dim, float* to) {
  for_pairs(head_dim, [&](int i, int c) { store2(to + c, {a * sum[i].x, a * sum[i].y}); });
}

// The query of a warp in the forward and the dq kernel.
struct QueryPlace {
  int query;
  int row;
  int keys;        // that it reads before the candidates
  bool candidate;  // reads itself too
  int head;
  int key_head;
  std::int64_t at;  // in q, o, lse

  __device__ QueryPlace(const AttentionCudaShape& s, const GpuExample& e)
      : query(static_cast<int>(blockIdx.x) * kRowWarps + warp_id()),
        row(query + e.row_of_query),
        keys(e.keys_read(s.causal, row)),
        candidate(row >= e.keys),
        head(static_cast<int>(blockIdx.y)),
        key_head(head / (s.query_heads / s.key_heads)),
        at(e.first_query + query) {}
};

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionCudaArgs<float> a) {
  __shared__ Rows kept;
  const AttentionCudaShape& s = a.shape;
  if (blockIdx.z == static_cast<unsigned>(s.max_examples)) return zero_tail(a);
  const GpuExample e(s, blockIdx.z);
  const QueryPlace p(s, e);
  if (p.query >= e.queries) return;
  const int dim = s.head_dim;
  const float* k = a.k + e.first_row * a.k_stride + p.key_head * dim;
  const float* v = a.v + e.first_row * a.v_stride + p.key_head * dim;
  float* q = kept[warp_id()][0];
  keep_row(q, a.q + p.at * a.q_stride + p.head * dim, dim);
  const GpuLogit<float, true> logit(s);
  float top = -INFINITY;
  float sum = 0.0F;
  RowSum o = {};
  if (p.candidate) {
    top = logit(product(q, k + p.row * a.k_stride, dim));
    sum = 1.0F;
    add_scaled(1.0F, v + p.row * a.v_stride, dim, o);
  }
  for (int k0 = 0; k0 < p.keys; k0 += 32) {
    const int j = k0 + lane_id();
    const bool read = j < p.keys;
    const float x = read ? logit(product(q, k + j * a.k_stride, dim)) : -INFINITY;
    const float new_top = fmaxf(top, warp_max(x));
    const float alpha = exp2f(top - new_top);
    const float weight = read ? exp2f(x - new_top) : 0.0F;
    top = new_top;
    sum = fmaf(sum, alpha, warp_sum(weight));
    for (auto& c : o) c = {c.x * alpha, c.y * alpha};
    for (int i = 0; i < min(32, p.keys - k0); ++i)
      add_scaled(__shfl_sync(~0U, weight, i), v + (k0 + i) * a.v_stride, dim, o);
  }
  store_scaled(1.0F / sum, o, dim, a.o + p.at * a.o_stride + p.head * dim);
  if (lane_id() == 0) a.lse[p.at * s.query_heads + p.head] = fmaf(top, kLn2Gpu, logf(sum));
}

// The gradient of a logit before scale and, in `weight`, the weight itself.
__device__ float logit_grad(const GpuLogit<float, true>& logit, float product, float dp, float lse,
                            float delta, float& weight) {
  float slope;
  const float x = logit.with_slope(product, slope);
  weight = exp2f(x - lse * kLog2EGpu);
  return weight * slope * (dp - delta);
}

__global__ void __launch_bounds__(kThreads)
    query_grad_kernel(const __grid_constant__ AttentionGradCudaArgs<float> g) {
  __shared__ Rows kept;
  const AttentionCudaArgs<float>& a = g.forward;
  const AttentionCudaShape& s = a.shape;
  const GpuExample e(s, blockIdx.z);
  const QueryPlace p(s, e);
  if (p.query >= e.queries) return;
  const int dim = s.head_dim;
  const float* k = a.k + e.first_row * a.k_stride + p.key_head * dim;
  const float* v = a.v + e.first_row * a.v_stride + p.key_head * dim;
  float* q = kept[warp_id()][0];
  float* d_o = kept[warp_id()][1];
  keep_row(q, a.q + p.at * a.q_stride + p.head * dim, dim);
  keep_row(d_o, g.d_o + p.at * g.do_stride + p.head * dim, dim);
  const float lse = a.lse[p.at * s.query_heads + p.head];
  const float delta = g.delta[p.at * s.query_heads + p.head];
  const GpuLogit<float, true> logit(s);
  RowSum dq = {};
  const auto grad = [&](std::int64_t j) {
    float weight;
    return logit_grad(logit, product(q, k + j * a.k_stride, dim),
                      product(d_o, v + j * a.v_stride, dim), lse, delta, weight);
  };
  if (p.candidate) add_scaled(grad(p.row), k + p.row * a.k_stride, dim, dq);
  for (int k0 = 0; k0 < p.keys; k0 += 32) {
    const int j = k0 + lane_id();
    const float ds = j < p.keys ? grad(j) : 0.0F;
    for (int i = 0; i < min(32, p.keys - k0); ++i)
      add_scaled(__shfl_sync(~0U, ds, i), k + (k0 + i) * a.k_stride, dim, dq);
  }
  store_scaled(s.scale, dq, dim, g.dq + p.at * g.dq_stride + p.head * dim);
}

__global__ void __launch_bounds__(kThreads)
    key_grad_kernel(const __grid_constant__ AttentionGradCudaArgs<float> g) {
  __shared__ Rows kept;
  const AttentionCudaArgs<float>& a = g.forward;
  const AttentionCudaShape& s = a.shape;
  const GpuExample e(s, blockIdx.z);
  const int key = static_cast<int>(blockIdx.x) * kRowWarps + warp_id();
  if (key >= e.keys) return;
  const int dim = s.head_dim;
  const int group = s.query_heads / s.key_heads;
  const int key_head = static_cast<int>(blockIdx.y);
  const std::int64_t row = e.first_row + key;
  float* k = kept[warp_id()][0];
  float* v = kept[warp_id()][1];
  keep_row(k, a.k + row * a.k_stride + key_head * dim, dim);
  keep_row(v, a.v + row * a.v_stride + key_head * dim, dim);
  const GpuLogit<float, true> logit(s);
  RowSum dk = {};
  RowSum dv = {};
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    const float* q = a.q + e.first_query * a.q_stride + h * dim;
    const float* d_o = g.d_o + e.first_query * g.do_stride + h * dim;
    for (int q0 = 0; q0 < e.queries; q0 += 32) {
      const int i = q0 + lane_id();
      float weight = 0.0F;
      float ds = 0.0F;
      if (i < e.queries && key < e.keys_read(s.causal, i + e.row_of_query)) {
        const std::int64_t at = (e.first_query + i) * s.query_heads + h;
        ds = logit_grad(logit, product(k, q + i * a.q_stride, dim),
                        product(v, d_o + i * g.do_stride, dim), a.lse[at], g.delta[at], weight);
      }
      for (int n = 0; n < min(32, e.queries - q0); ++n) {
        add_scaled(__shfl_sync(~0U, weight, n), d_o + (q0 + n) * g.do_stride, dim, dv);
        add_scaled(__shfl_sync(~0U, ds, n), q + (q0 + n) * a.q_stride, dim, dk);
      }
    }
  }
  store_scaled(s.scale, dk, dim, g.dk + row * g.dk_stride + key_head * dim);
  store_scaled(1.0F, dv, dim, g.dv + row * g.dv_stride + key_head * dim);
}

void check_float_shape(const AttentionCudaShape& s) {
  check_shape(s);
  PL_CHECK(s.head_dim > 0 && s.head_dim % 8 == 0 && s.head_dim <= kMaxHeadDim,
           "head_dim is a multiple of 8 up to 128");
}

}  // namespace

template <>
void ranker_attention_cuda(const device::Stream& stream, const AttentionCudaArgs<float>& args) {
  const AttentionCudaShape& s = args.shape;
  check_float_shape(s);
  forward_kernel<<<grid_of(s, max_queries(s), kRowWarps, s.query_heads), kThreads, 0,
                   raw(stream)>>>(args);
  device::launched("ranker_attention_float", stream);
}

template <>
void ranker_attention_grad_cuda(const device::Stream& stream,
                                const AttentionGradCudaArgs<float>& args) {
  const AttentionCudaShape& s = args.forward.shape;
  check_float_shape(s);
  launch_grad_rows(stream, args);
  if (s.max_examples == 0) return;
  dim3 grid = grid_of(s, max_queries(s), kRowWarps, s.query_heads);
  grid.z = static_cast<unsigned>(s.max_examples);
  query_grad_kernel<<<grid, kThreads, 0, raw(stream)>>>(args);
  device::launched("ranker_attention_float_query_grad", stream);
  grid = grid_of(s, s.max_rows, kRowWarps, s.key_heads);
  grid.z = static_cast<unsigned>(s.max_examples);
  key_grad_kernel<<<grid, kThreads, 0, raw(stream)>>>(args);
  device::launched("ranker_attention_float_key_grad", stream);
}

}  // namespace paceline::ops
