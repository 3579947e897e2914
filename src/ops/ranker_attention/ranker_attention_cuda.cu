// Forward of the ranker attention in bf16: a block keeps 128 queries of one head and steps through
// the keys, 64 at a time, the next step being copied while one is computed.
//
// A candidate starts from its own key (maximum its own logit, sum 1, output its own value), so that
// the keys before the candidates are all that is left, for every row the same.
#include <cmath>

#include "ops/ranker_attention/ranker_attention_mma.cuh"

namespace paceline::ops {
namespace {

using namespace attention;  // NOLINT: the private half of this op

template <int kDim>
constexpr int kSharedBytes = Tile<kDim>::bytes(kOwnRows) + 4 * Tile<kDim>::bytes(kStepRows);

// What a lane knows of its two rows, g and g + 8 of the warp's sixteen.
struct SoftmaxRows {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};  // of this lane's columns
};

template <int kDim, bool kCapped>
class Forward {
 public:
  __device__ Forward(const AttentionCudaArgs<BFloat16>& args, const GpuExample& example,
                     std::uint32_t shared)
      : a_(args),
        e_(example),
        logit_(args.shape),
        head_(static_cast<int>(blockIdx.y)),
        first_(static_cast<int>(blockIdx.x) * kOwnRows),
        mine_(first_ + warp_id() * 16) {
    const AttentionCudaShape& s = a_.shape;
    const int key_head = head_ / (s.query_heads / s.key_heads);
    q_ = a_.q + (e_.first_query + first_) * a_.q_stride + head_ * kDim;
    k_ = a_.k + e_.first_row * a_.k_stride + key_head * kDim;
    v_ = a_.v + e_.first_row * a_.v_stride + key_head * kDim;
    own_.base = shared;
  }

  __device__ void run() {
    load_tile<kOwnRows>(own_, q_, a_.q_stride, e_.queries - first_);
    load_step(0);
    start();
    // Keys that any row of the block, and that every row of the warp reads.
    const int end = e_.keys_read(a_.shape.causal, row_of(first_ + kOwnRows - 1));
    const int all = e_.keys_read(a_.shape.causal, row_of(mine_));
    const bool busy = mine_ < e_.queries;
    for (int k0 = 0; k0 < end; k0 += kStepRows) {
      wait_copies();
      __syncthreads();
      if (k0 + kStepRows < end) load_step(k0 + kStepRows);
      if (busy) step(k0, k0 + kStepRows > all);
    }
    if (end <= 0) {
      wait_copies();
      __syncthreads();
    }
    if (busy) finish();
  }

 private:
  __device__ int row_of(int query) const { return query + e_.row_of_query; }
  __device__ int own_query(int half) const { return mine_ + lane_id() / 4 + 8 * half; }

  // Two tiles of keys, then two of values.
  __device__ Tile<kDim> keys(int k0) const {
    const int i = k0 / kStepRows % 2;
    return {own_.base + Tile<kDim>::bytes(kOwnRows) + i * Tile<kDim>::bytes(kStepRows)};
  }
  __device__ Tile<kDim> values(int k0) const {
    return {keys(k0).base + 2 * Tile<kDim>::bytes(kStepRows)};
  }
  __device__ void load_step(int k0) const {
    load_tile<kStepRows>(keys(k0), k_ + k0 * a_.k_stride, a_.k_stride, e_.keys - k0);
    load_tile<kStepRows>(values(k0), v_ + k0 * a_.v_stride, a_.v_stride, e_.keys - k0);
  }

  __device__ void start() {
#pragma unroll
    for (auto& o : o_) o[0] = o[1] = o[2] = o[3] = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = own_query(half);
      const int row = row_of(query);
      const bool candidate = query < e_.queries && row >= e_.keys;
      // The lanes of other rows go along with any row that is there.
      const std::int64_t own = candidate ? row : 0;
      if (!__any_sync(~0U, candidate)) continue;
      const BFloat16* q = q_ + (candidate ? query - first_ : 0) * a_.q_stride;
      const float s = logit_(row_product<kDim>(q, k_ + own * a_.k_stride));
      if (!candidate) continue;
      rows_.max[half] = s;
      rows_.sum[half] = lane_id() % 4 == 0 ? 1.0F : 0.0F;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float2 v = load2(v_ + own * a_.v_stride + 8 * n + 2 * (lane_id() % 4));
        o_[n][2 * half] = v.x;
        o_[n][2 * half + 1] = v.y;
      }
    }
  }

  __device__ void step(int k0, bool masked) {
    Scores s;
    multiply_rows(s, own_, mine_ - first_, keys(k0));
#pragma unroll
    for (auto& x : s) {
#pragma unroll
      for (float& y : x) y = logit_(y);
    }
    if (masked) mask(s, k0);
    weigh(s);
    Weights w;
    to_weights(w, s);
    add_weighted<kDim>(o_, w, values(k0));
  }

  __device__ void mask(Scores& s, int k0) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n =
          e_.keys_read(a_.shape.causal, row_of(own_query(half))) - k0 - 2 * (lane_id() % 4);
#pragma unroll
      for (int j = 0; j < kStepRows / 8; ++j) {
        if (8 * j >= n) s[j][2 * half] = -INFINITY;
        if (8 * j + 1 >= n) s[j][2 * half + 1] = -INFINITY;
      }
    }
  }

  // Turns logits into 2^(logit - maximum) and rescales what was summed.
  __device__ void weigh(Scores& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows_.max[half];
#pragma unroll
      for (const auto& x : s) top = fmaxf(top, fmaxf(x[2 * half], x[2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0U, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0U, top, 2));
      const float alpha = exp2_of<BFloat16>(rows_.max[half] - top);
      rows_.max[half] = top;
      float sum = rows_.sum[half] * alpha;
#pragma unroll
      for (auto& x : s) {
        x[2 * half] = exp2_of<BFloat16>(x[2 * half] - top);
        x[2 * half + 1] = exp2_of<BFloat16>(x[2 * half + 1] - top);
        sum += x[2 * half] + x[2 * half + 1];
      }
      rows_.sum[half] = sum;
#pragma unroll
      for (auto& o : o_) {
        o[2 * half] *= alpha;
        o[2 * half + 1] *= alpha;
      }
    }
  }

  __device__ void finish() {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows_.sum[half];
      sum += __shfl_xor_sync(~0U, sum, 1);
      sum += __shfl_xor_sync(~0U, sum, 2);
      factor[half] = 1.0F / sum;
      const int query = own_query(half);
      if (lane_id() % 4 == 0 && query < e_.queries) {
        a_.lse[(e_.first_query + query) * a_.shape.query_heads + head_] =
            fmaf(rows_.max[half], kLn2Gpu, logf(sum));
      }
    }
    store_sums<kDim>(o_, factor[0], factor[1], own_, mine_ - first_,
                     a_.o + (e_.first_query + mine_) * a_.o_stride + head_ * kDim, a_.o_stride,
                     e_.queries - mine_);
  }

  const AttentionCudaArgs<BFloat16>& a_;
  const GpuExample& e_;
  const GpuLogit<BFloat16, kCapped> logit_;
  const int head_;
  const int first_;  // query of the block's row 0
  const int mine_;   // query of the warp's row 0
  const BFloat16* q_;
  const BFloat16* k_;
  const BFloat16* v_;
  Tile<kDim> own_;
  SoftmaxRows rows_;
  Sums<kDim> o_;
};

template <int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads, 2)
    forward_kernel(const __grid_constant__ AttentionCudaArgs<BFloat16> a) {
  extern __shared__ __align__(128) unsigned char shared[];
  if (blockIdx.z == static_cast<unsigned>(a.shape.max_examples)) return zero_tail(a);
  const GpuExample e(a.shape, blockIdx.z);
  if (static_cast<int>(blockIdx.x) * kOwnRows >= e.queries) return;
  Forward<kDim, kCapped>(a, e, shared_address(shared)).run();
}

template <int kDim>
void launch(const device::Stream& stream, const AttentionCudaArgs<BFloat16>& args) {
  const AttentionCudaShape& s = args.shape;
  const auto kernel =
      s.cap_kind == SoftCap::kNone ? forward_kernel<kDim, false> : forward_kernel<kDim, true>;
  launch_mma(kernel, "ranker_attention", grid_of(s, max_queries(s), kOwnRows, s.query_heads),
             kSharedBytes<kDim>, args, stream);
}

}  // namespace

template <>
void ranker_attention_cuda(const device::Stream& stream, const AttentionCudaArgs<BFloat16>& args) {
  check_shape(args.shape);
  PL_CHECK(args.shape.head_dim == 64 || args.shape.head_dim == 128, "head_dim is 64 or 128");
  args.shape.head_dim == 64 ? launch<64>(stream, args) : launch<128>(stream, args);
}

}  // namespace paceline::ops
