// A thread holds both halves of what it turns: vectors 2 p and 2 p + 1 are a pair.
#include "ops/norm_rope/norm_rope_cuda.hpp"

#include "core/error.hpp"
#include "ops/norm_rows.cuh"

namespace paceline::ops {
namespace {

// Where a thread's vectors lie in a row (past the width: nowhere), and its pairs' angles in the
// table's row.
template <typename Shape>
struct Pairs {
  static constexpr int kPairs = Shape::kVectors / 2;
  int at[Shape::kVectors];
  int angle[kPairs];

  __device__ Pairs(int width, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % Shape::kLanes;
    const int half = head_dim / 2;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int channel = (p * Shape::kLanes + lane) * kVector;  // among the first halves
      const int head = channel / half;
      angle[p] = channel - head * half;
      at[2 * p] = channel < width / 2 ? head * head_dim + angle[p] : width;
      at[2 * p + 1] = channel < width / 2 ? at[2 * p] + half : width;
    }
  }
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(kNormThreads)
    norm_rope_kernel(const __grid_constant__ NormRopeCudaArgs<T> a) {
  const int width = a.heads * a.head_dim;
  const Pairs<Shape> pairs(width, a.head_dim);
  const std::int64_t row =
      std::int64_t{blockIdx.x} * Shape::kRows + threadIdx.x / unsigned{Shape::kLanes};
  const bool here = row < a.rows;
  float x[Shape::kVectors][kVector] = {};
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    if (here && pairs.at[v] < width) load8(a.x + row * a.x_stride + pairs.at[v], x[v]);
  }
  const std::int64_t angles = here ? std::int64_t{a.positions[row]} * (a.head_dim / 2) : 0;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
#pragma unroll
    for (int k = 0; k < kVector; ++k) squares = fmaf(x[v][k], x[v][k], squares);
  }
  const float mean = row_sum<Shape>(squares) / static_cast<float>(width);
  if (!here) return;
  const float inv = 1.0F / sqrtf(mean + a.eps);
  if (threadIdx.x % Shape::kLanes == 0) a.inv_rms[row] = inv;
#pragma unroll
  for (int p = 0; p < Pairs<Shape>::kPairs; ++p) {
    const int first = pairs.at[2 * p], second = pairs.at[2 * p + 1];
    if (first >= width) continue;
    float scale1[kVector], scale2[kVector], c[kVector], s[kVector];
    load8(a.scale + first, scale1);
    load8(a.scale + second, scale2);
    load8(a.rope.cos + angles + pairs.angle[p], c);
    load8(a.rope.sin + angles + pairs.angle[p], s);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float n1 = x[2 * p][k] * inv * scale1[k];
      const float n2 = x[2 * p + 1][k] * inv * scale2[k];
      x[2 * p][k] = fmaf(n1, c[k], -(n2 * s[k]));
      x[2 * p + 1][k] = fmaf(n2, c[k], n1 * s[k]);
    }
    store8(a.y + row * width + first, x[2 * p]);
    store8(a.y + row * width + second, x[2 * p + 1]);
  }
}

// dn = dy turned back is the gradient of the norm's output; from there as rms_norm_grad_cuda.
template <typename T, typename Shape>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks<T, Shape>)
    norm_rope_grad_kernel(const __grid_constant__ NormRopeGradCudaArgs<T> a) {
  const int width = a.heads * a.head_dim;
  const Pairs<Shape> pairs(width, a.head_dim);
  float sums[Shape::kVectors][kVector] = {};
  for (std::int64_t base = std::int64_t{blockIdx.x} * Shape::kRows; base < a.rows;
       base += std::int64_t{gridDim.x} * Shape::kRows) {
    const std::int64_t row = base + threadIdx.x / unsigned{Shape::kLanes};
    const bool here = row < a.rows;
    Packed8<T> x[Shape::kVectors] = {};
    float dn[Shape::kVectors][kVector] = {};
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (!here || pairs.at[v] >= width) continue;
      x[v] = load_packed(a.x + row * a.x_stride + pairs.at[v]);
      load8(a.dy + row * width + pairs.at[v], dn[v]);
    }
    const float inv = here ? a.inv_rms[row] : 0.0F;
    const std::int64_t angles = here ? std::int64_t{a.positions[row]} * (a.head_dim / 2) : 0;
    float dot = 0.0F;
#pragma unroll
    for (int p = 0; p < Pairs<Shape>::kPairs; ++p) {
      if (!here || pairs.at[2 * p] >= width) continue;
      float c[kVector], s[kVector];
      load8(a.rope.cos + angles + pairs.angle[p], c);
      load8(a.rope.sin + angles + pairs.angle[p], s);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float dy1 = dn[2 * p][k], dy2 = dn[2 * p + 1][k];
        dn[2 * p][k] = fmaf(dy1, c[k], dy2 * s[k]);
        dn[2 * p + 1][k] = fmaf(dy2, c[k], -(dy1 * s[k]));
      }
    }
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (pairs.at[v] >= width) continue;
      float xs[kVector], scale[kVector];
      unpack(x[v], xs);
      load8(a.scale + pairs.at[v], scale);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float product = dn[v][k] * xs[k];
        dot = fmaf(product, scale[k], dot);
        sums[v][k] = fmaf(product, inv, sums[v][k]);
      }
    }
    const float back = inv * inv * inv * (row_sum<Shape>(dot) / static_cast<float>(width));
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (!here || pairs.at[v] >= width) continue;
      float xs[kVector], scale[kVector];
      unpack(x[v], xs);
      load8(a.scale + pairs.at[v], scale);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        dn[v][k] = fmaf(-xs[k], back, dn[v][k] * scale[k] * inv);
      }
      store8(a.dx + row * a.dx_stride + pairs.at[v], dn[v]);
    }
  }
  store_column_sums<Shape>(sums, pairs.at, width, a.partials + std::int64_t{blockIdx.x} * width);
}

// Calls launch with the shape for rows of so many heads.
template <typename Launch>
void with_shape(int heads, int head_dim, Launch&& launch) {
  PL_CHECK(heads > 0 && head_dim > 0 && head_dim % (2 * kVector) == 0 &&
               heads <= kMaxNormWidth / head_dim,
           "a head is a multiple of 16, all heads at most 8192 channels");
  const int width = heads * head_dim;
  if (width <= NormShape<16, 2>::kMaxWidth) return launch(NormShape<16, 2>{});
  if (width <= NormShape<32, 2>::kMaxWidth) return launch(NormShape<32, 2>{});
  if (width <= NormShape<128, 2>::kMaxWidth) return launch(NormShape<128, 2>{});
  if (width <= NormShape<256, 2>::kMaxWidth) return launch(NormShape<256, 2>{});
  launch(NormShape<256, 4>{});
}

cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

template <typename T>
void norm_rope_cuda(const device::Stream& stream, const NormRopeCudaArgs<T>& args) {
  with_shape(args.heads, args.head_dim, [&](auto shape) {
    using Shape = decltype(shape);
    if (args.rows == 0) return;
    const auto blocks = static_cast<unsigned>((args.rows + Shape::kRows - 1) / Shape::kRows);
    norm_rope_kernel<T, Shape><<<blocks, kNormThreads, 0, raw(stream)>>>(args);
    device::launched("norm_rope", stream);
  });
}

template <typename T>
void norm_rope_grad_cuda(const device::Stream& stream, const NormRopeGradCudaArgs<T>& args) {
  with_shape(args.heads, args.head_dim, [&](auto shape) {
    using Shape = decltype(shape);
    const int blocks = norm_grad_blocks<T, Shape>(args.rows);
    if (blocks > 0) {
      norm_rope_grad_kernel<T, Shape>
          <<<static_cast<unsigned>(blocks), kNormThreads, 0, raw(stream)>>>(args);
      device::launched("norm_rope_grad", stream);
    }
    sum_norm_partials(stream, blocks, args.heads * args.head_dim, args.partials, args.dscale);
  });
}

template void norm_rope_cuda(const device::Stream&, const NormRopeCudaArgs<float>&);
template void norm_rope_cuda(const device::Stream&, const NormRopeCudaArgs<device::BFloat16>&);
template void norm_rope_grad_cuda(const device::Stream&, const NormRopeGradCudaArgs<float>&);
template void norm_rope_grad_cuda(const device::Stream&,
                                  const NormRopeGradCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
