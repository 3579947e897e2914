// Backward of the ranker attention in bf16, without atomics: a kernel over rows
// (ranker_attention_grad_rows.cuh), then one that keeps queries and steps through keys for dq, and
// one that keeps keys and steps through the queries of all heads of the group for dk and dv.
// Both recompute the weights from lse. Steps are copied while the one before is computed.
#include "ops/ranker_attention/ranker_attention_grad_rows.cuh"
#include "ops/ranker_attention/ranker_attention_mma.cuh"

namespace paceline::ops {
namespace {

using namespace attention;  // NOLINT: the private half of this op

// Two tiles that are kept, two of each step's two.
template <int kDim>
constexpr int kSharedBytes = 2 * Tile<kDim>::bytes(kOwnRows) + 4 * Tile<kDim>::bytes(kStepRows);
constexpr int kStatisticsBytes = 2 * 2 * kStepRows * static_cast<int>(sizeof(float));

template <int kDim>
struct SharedTiles {
  std::uint32_t base;

  __device__ Tile<kDim> own(int which) const {
    return {base + which * Tile<kDim>::bytes(kOwnRows)};
  }
  __device__ Tile<kDim> step(int number, int which) const {
    return {base + 2 * Tile<kDim>::bytes(kOwnRows) +
            (2 * (number % 2) + which) * Tile<kDim>::bytes(kStepRows)};
  }
};

// The gradients of 128 queries of one head.
template <int kDim, bool kCapped>
class QueryGrad {
 public:
  __device__ QueryGrad(const AttentionGradCudaArgs<BFloat16>& args, const GpuExample& example,
                       std::uint32_t shared)
      : g_(args),
        a_(args.forward),
        e_(example),
        logit_(args.forward.shape),
        tiles_{shared},
        head_(static_cast<int>(blockIdx.y)),
        first_(static_cast<int>(blockIdx.x) * kOwnRows),
        mine_(first_ + warp_id() * 16) {
    const AttentionCudaShape& s = a_.shape;
    const int key_head = head_ / (s.query_heads / s.key_heads);
    q_ = a_.q + (e_.first_query + first_) * a_.q_stride + head_ * kDim;
    d_o_ = g_.d_o + (e_.first_query + first_) * g_.do_stride + head_ * kDim;
    k_ = a_.k + e_.first_row * a_.k_stride + key_head * kDim;
    v_ = a_.v + e_.first_row * a_.v_stride + key_head * kDim;
  }

  __device__ void run() {
    load_tile<kOwnRows>(tiles_.own(0), q_, a_.q_stride, e_.queries - first_);
    load_tile<kOwnRows>(tiles_.own(1), d_o_, g_.do_stride, e_.queries - first_);
    load_step(0);
    start();
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
    if (busy) {
      store_sums<kDim>(dq_, a_.shape.scale, a_.shape.scale, tiles_.own(0), mine_ - first_,
                       g_.dq + (e_.first_query + mine_) * g_.dq_stride + head_ * kDim, g_.dq_stride,
                       e_.queries - mine_);
    }
  }

 private:
  __device__ int row_of(int query) const { return query + e_.row_of_query; }
  __device__ int own_query(int half) const { return mine_ + lane_id() / 4 + 8 * half; }

  __device__ void load_step(int k0) const {
    const int i = k0 / kStepRows;
    load_tile<kStepRows>(tiles_.step(i, 0), k_ + k0 * a_.k_stride, a_.k_stride, e_.keys - k0);
    load_tile<kStepRows>(tiles_.step(i, 1), v_ + k0 * a_.v_stride, a_.v_stride, e_.keys - k0);
  }

  // Reads lse and delta; a candidate's own key comes first.
  __device__ void start() {
#pragma unroll
    for (auto& x : dq_) x[0] = x[1] = x[2] = x[3] = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = own_query(half);
      const bool valid = query < e_.queries;
      const std::int64_t at = (e_.first_query + query) * a_.shape.query_heads + head_;
      lse_[half] = valid ? a_.lse[at] * kLog2EGpu : 0.0F;
      delta_[half] = valid ? g_.delta[at] : 0.0F;
      const int row = row_of(query);
      const bool candidate = valid && row >= e_.keys;
      if (!__any_sync(~0U, candidate)) continue;
      // The lanes of other rows go along with any row that is there.
      const BFloat16* k = k_ + (candidate ? row : 0) * a_.k_stride;
      const BFloat16* v = v_ + (candidate ? row : 0) * a_.v_stride;
      const std::int64_t i = candidate ? query - first_ : 0;
      float slope;
      const float x = logit_.with_slope(row_product<kDim>(q_ + i * a_.q_stride, k), slope);
      const float dp = row_product<kDim>(d_o_ + i * g_.do_stride, v);
      if (!candidate) continue;
      const float ds = exp2_of<BFloat16>(x - lse_[half]) * slope * (dp - delta_[half]);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float2 kc = load2(k + 8 * n + 2 * (lane_id() % 4));
        dq_[n][2 * half] = ds * kc.x;
        dq_[n][2 * half + 1] = ds * kc.y;
      }
    }
  }

  __device__ void step(int k0, bool masked) {
    const int i = k0 / kStepRows;
    Scores s;
    multiply_rows(s, tiles_.own(0), mine_ - first_, tiles_.step(i, 0));
    Scores dp;
    multiply_rows(dp, tiles_.own(1), mine_ - first_, tiles_.step(i, 1));
#pragma unroll
    for (int j = 0; j < kStepRows / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float slope;
        const float x = logit_.with_slope(s[j][c], slope);
        s[j][c] = exp2_of<BFloat16>(x - lse_[c / 2]) * slope * (dp[j][c] - delta_[c / 2]);
      }
    }
    if (masked) mask(s, k0);
    Weights w;
    to_weights(w, s);
    add_weighted<kDim>(dq_, w, tiles_.step(i, 0));
  }

  __device__ void mask(Scores& s, int k0) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(own_query(half));
      const int n = e_.keys_read(a_.shape.causal, row) - k0 - 2 * (lane_id() % 4);
#pragma unroll
      for (int j = 0; j < kStepRows / 8; ++j) {
        if (8 * j >= n) s[j][2 * half] = 0.0F;
        if (8 * j + 1 >= n) s[j][2 * half + 1] = 0.0F;
      }
    }
  }

  const AttentionGradCudaArgs<BFloat16>& g_;
  const AttentionCudaArgs<BFloat16>& a_;
  const GpuExample& e_;
  const GpuLogit<BFloat16, kCapped> logit_;
  const SharedTiles<kDim> tiles_;
  const int head_;
  const int first_;  // query of the block's row 0
  const int mine_;   // query of the warp's row 0
  const BFloat16* q_;
  const BFloat16* d_o_;
  const BFloat16* k_;
  const BFloat16* v_;
  float lse_[2];  // of the lane's two rows, in log2 units
  float delta_[2];
  Sums<kDim> dq_;
};

// The gradients of 128 keys of one key head. Scores are transposed: a warp's rows are keys, its
// columns queries.
template <int kDim, bool kCapped>
class KeyGrad {
 public:
  __device__ KeyGrad(const AttentionGradCudaArgs<BFloat16>& args, const GpuExample& example,
                     unsigned char* shared)
      : g_(args),
        a_(args.forward),
        e_(example),
        logit_(args.forward.shape),
        tiles_{shared_address(shared)},
        statistics_(reinterpret_cast<const float*>(shared + kSharedBytes<kDim>)),
        key_head_(static_cast<int>(blockIdx.y)),
        group_(a_.shape.query_heads / a_.shape.key_heads),
        first_(static_cast<int>(blockIdx.x) * kOwnRows),
        mine_(first_ + warp_id() * 16) {
    const std::int64_t row = e_.first_row + first_;
    k_ = a_.k + row * a_.k_stride + key_head_ * kDim;
    v_ = a_.v + row * a_.v_stride + key_head_ * kDim;
  }

  __device__ void run() {
    load_tile<kOwnRows>(tiles_.own(0), k_, a_.k_stride, e_.keys - first_);
    load_tile<kOwnRows>(tiles_.own(1), v_, a_.v_stride, e_.keys - first_);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) dk_[n][c] = dv_[n][c] = 0.0F;
    }
    // Causal: rows before the block's keys read none of them.
    const int begin =
        a_.shape.causal ? max(0, first_ - e_.row_of_query) / kStepRows * kStepRows : 0;
    const int per_head = max(0, (e_.queries - begin + kStepRows - 1) / kStepRows);
    const int steps = per_head * group_;
    const bool busy = mine_ < e_.keys;
    if (steps > 0) load_step(0, begin, per_head);
    for (int i = 0; i < steps; ++i) {
      wait_copies();
      __syncthreads();
      if (i + 1 < steps) load_step(i + 1, begin, per_head);
      if (busy) step(i, begin + i % per_head * kStepRows);
    }
    wait_copies();
    __syncthreads();
    if (busy) finish();
  }

 private:
  __device__ std::uint32_t statistic(int number, int which, int i) const {
    return shared_address(statistics_ + (2 * (number % 2) + which) * kStepRows + i);
  }

  // Queries past the last are zeros with lse and delta 0, and so add nothing.
  __device__ void load_step(int number, int begin, int per_head) const {
    const int head = key_head_ * group_ + number / per_head;
    const int q0 = begin + number % per_head * kStepRows;
    const int rows = e_.queries - q0;
    const std::int64_t query = e_.first_query + q0;
    load_tile<kStepRows>(tiles_.step(number, 0), a_.q + query * a_.q_stride + head * kDim,
                         a_.q_stride, rows);
    load_tile<kStepRows>(tiles_.step(number, 1), g_.d_o + query * g_.do_stride + head * kDim,
                         g_.do_stride, rows);
    if (threadIdx.x < 2 * kStepRows) {
      const int i = static_cast<int>(threadIdx.x) % kStepRows;
      const int which = static_cast<int>(threadIdx.x) / kStepRows;
      const bool valid = i < rows;
      const float* from = which == 0 ? a_.lse : g_.delta;
      copy_async<4>(statistic(number, which, i),
                    from + (valid ? (query + i) * a_.shape.query_heads + head : 0), valid);
    }
  }

  __device__ void step(int number, int q0) {
    const float* lse = statistics_ + 2 * (number % 2) * kStepRows + 2 * (lane_id() % 4);
    const float* delta = lse + kStepRows;
    Scores s;
    multiply_rows(s, tiles_.own(0), mine_ - first_, tiles_.step(number, 0));
    Scores slope;
#pragma unroll
    for (int j = 0; j < kStepRows / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float x = logit_.with_slope(s[j][c], slope[j][c]);
        s[j][c] = exp2_of<BFloat16>(fmaf(lse[8 * j + c % 2], -kLog2EGpu, x));
      }
    }
    if (a_.shape.causal && q0 + e_.row_of_query < mine_ + 15) mask(s, q0);
    Weights w;
    to_weights(w, s);
#pragma unroll
    for (int j = 0; j < kStepRows / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[j][c] *= slope[j][c];
    }
    add_weighted<kDim>(dv_, w, tiles_.step(number, 1));
    Scores dp;
    multiply_rows(dp, tiles_.own(1), mine_ - first_, tiles_.step(number, 1));
#pragma unroll
    for (int j = 0; j < kStepRows / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[j][c] *= dp[j][c] - delta[8 * j + c % 2];
    }
    to_weights(w, s);
    add_weighted<kDim>(dk_, w, tiles_.step(number, 0));
  }

  // A history row reads keys up to its own only.
  __device__ void mask(Scores& s, int q0) const {
#pragma unroll
    for (int j = 0; j < kStepRows / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = q0 + e_.row_of_query + 8 * j + 2 * (lane_id() % 4) + c % 2;
        const int key = mine_ + lane_id() / 4 + 8 * (c / 2);
        if (row < key && row < e_.keys) s[j][c] = 0.0F;
      }
    }
  }

  __device__ void finish() {
    const std::int64_t row = e_.first_row + mine_;
    store_sums<kDim>(dk_, a_.shape.scale, a_.shape.scale, tiles_.own(0), mine_ - first_,
                     g_.dk + row * g_.dk_stride + key_head_ * kDim, g_.dk_stride, e_.keys - mine_);
    store_sums<kDim>(dv_, 1.0F, 1.0F, tiles_.own(1), mine_ - first_,
                     g_.dv + row * g_.dv_stride + key_head_ * kDim, g_.dv_stride, e_.keys - mine_);
  }

  const AttentionGradCudaArgs<BFloat16>& g_;
  const AttentionCudaArgs<BFloat16>& a_;
  const GpuExample& e_;
  const GpuLogit<BFloat16, kCapped> logit_;
  const SharedTiles<kDim> tiles_;
  const float* const statistics_;  // lse, delta of a step's queries; of the next step's
  const int key_head_;
  const int group_;
  const int first_;  // key of the block's row 0
  const int mine_;   // key of the warp's row 0
  const BFloat16* k_;
  const BFloat16* v_;
  Sums<kDim> dk_;
  Sums<kDim> dv_;
};

template <int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads, 1)
    query_grad_kernel(const __grid_constant__ AttentionGradCudaArgs<BFloat16> g) {
  extern __shared__ __align__(128) unsigned char shared[];
  const GpuExample e(g.forward.shape, blockIdx.z);
  if (static_cast<int>(blockIdx.x) * kOwnRows >= e.queries) return;
  QueryGrad<kDim, kCapped>(g, e, shared_address(shared)).run();
}

template <int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads, 1)
    key_grad_kernel(const __grid_constant__ AttentionGradCudaArgs<BFloat16> g) {
  extern __shared__ __align__(128) unsigned char shared[];
  const GpuExample e(g.forward.shape, blockIdx.z);
  if (static_cast<int>(blockIdx.x) * kOwnRows >= e.keys) return;
  KeyGrad<kDim, kCapped>(g, e, shared).run();
}

template <int kDim, bool kCapped>
void launch(const device::Stream& stream, const AttentionGradCudaArgs<BFloat16>& args) {
  const AttentionCudaShape& s = args.forward.shape;
  launch_grad_rows(stream, args);
  if (s.max_examples == 0) return;
  dim3 grid = grid_of(s, max_queries(s), kOwnRows, s.query_heads);
  grid.z = static_cast<unsigned>(s.max_examples);
  launch_mma(query_grad_kernel<kDim, kCapped>, "ranker_attention_query_grad", grid,
             kSharedBytes<kDim>, args, stream);
  grid = grid_of(s, s.max_rows, kOwnRows, s.key_heads);
  grid.z = static_cast<unsigned>(s.max_examples);
  launch_mma(key_grad_kernel<kDim, kCapped>, "ranker_attention_key_grad", grid,
             kSharedBytes<kDim> + kStatisticsBytes, args, stream);
}

}  // namespace

template <>
void ranker_attention_grad_cuda(const device::Stream& stream,
                                const AttentionGradCudaArgs<BFloat16>& args) {
  const AttentionCudaShape& s = args.forward.shape;
  check_shape(s);
  PL_CHECK(s.head_dim == 64 || s.head_dim == 128, "head_dim is 64 or 128");
  const bool capped = s.cap_kind != SoftCap::kNone;
  if (s.head_dim == 64) {
    capped ? launch<64, true>(stream, args) : launch<64, false>(stream, args);
  } else {
    capped ? launch<128, true>(stream, args) : launch<128, false>(stream, args);
  }
}

}  // namespace paceline::ops
