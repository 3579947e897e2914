#include "ops/rms_norm/rms_norm_cuda.hpp"

#include "ops/norm_rows.cuh"

namespace paceline::ops {
namespace {

template <typename T, typename Shape>
__global__ void __launch_bounds__(kNormThreads)
    norm_kernel(const __grid_constant__ RmsNormCudaArgs<T> a) {
  const NormColumns<Shape> columns;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * Shape::kRows + threadIdx.x / unsigned{Shape::kLanes};
  const bool here = row < a.rows;
  float x[Shape::kVectors][kVector] = {};
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    if (here && columns.at[v] < a.width) load8(a.x + row * a.width + columns.at[v], x[v]);
  }
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
#pragma unroll
    for (int k = 0; k < kVector; ++k) squares = fmaf(x[v][k], x[v][k], squares);
  }
  const float mean = row_sum<Shape>(squares) / static_cast<float>(a.width);
  if (!here) return;
  const float inv = 1.0F / sqrtf(mean + a.eps);
  if (threadIdx.x % Shape::kLanes == 0) a.inv_rms[row] = inv;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    if (columns.at[v] >= a.width) continue;
    float scale[kVector];
    load8(a.scale + columns.at[v], scale);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[v][k] = x[v][k] * inv * scale[k];
    store8(a.y + row * a.width + columns.at[v], x[v]);
  }
}

// v += eight values at p, where there is an array.
template <typename T>
__device__ void add8(const T* p, std::int64_t at, float (&v)[kVector]) {
  if (p == nullptr) return;
  float more[kVector];
  load8(p + at, more);
#pragma unroll
  for (int k = 0; k < kVector; ++k) v[k] += more[k];
}

// With g = dy scale and r = inv_rms: dx = residual + r g - x r^3 mean(g x), dscale = sum of dy x r.
// What a row needs is loaded before its sum is waited for, and unpacked again after it.
template <typename T, typename Shape>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks<T, Shape>)
    norm_grad_kernel(const __grid_constant__ RmsNormGradCudaArgs<T> a) {
  const NormColumns<Shape> columns;
  float sums[Shape::kVectors][kVector] = {};
  for (std::int64_t first = std::int64_t{blockIdx.x} * Shape::kRows; first < a.rows;
       first += std::int64_t{gridDim.x} * Shape::kRows) {
    const std::int64_t row = first + threadIdx.x / unsigned{Shape::kLanes};
    const bool here = row < a.rows;
    Packed8<T> x[Shape::kVectors] = {}, dy[Shape::kVectors] = {}, residual[Shape::kVectors] = {};
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (!here || columns.at[v] >= a.width) continue;
      const std::int64_t at = row * a.width + columns.at[v];
      x[v] = load_packed(a.x + at);
      dy[v] = load_packed(a.dy + at);
      if (a.residual != nullptr) residual[v] = load_packed(a.residual + at);
    }
    const float inv = here ? a.inv_rms[row] : 0.0F;
    const std::int64_t extra =
        here && a.extra.index != nullptr ? a.extra.index[row] - a.extra.first : -1;
    float dot = 0.0F;
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (columns.at[v] >= a.width) continue;
      float xs[kVector], dys[kVector], scale[kVector];
      unpack(x[v], xs);
      unpack(dy[v], dys);
      if (extra >= 0) add8(a.extra.dy, extra * a.width + columns.at[v], dys);
      load8(a.scale + columns.at[v], scale);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float product = dys[k] * xs[k];
        dot = fmaf(product, scale[k], dot);
        sums[v][k] = fmaf(product, inv, sums[v][k]);
      }
    }
    const float back = inv * inv * inv * (row_sum<Shape>(dot) / static_cast<float>(a.width));
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (!here || columns.at[v] >= a.width) continue;
      float xs[kVector], dys[kVector], scale[kVector], dx[kVector];
      unpack(x[v], xs);
      unpack(dy[v], dys);
      unpack(residual[v], dx);
      if (extra >= 0) {
        add8(a.extra.dy, extra * a.width + columns.at[v], dys);
        add8(a.extra.residual, extra * a.width + columns.at[v], dx);
      }
      load8(a.scale + columns.at[v], scale);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        dx[k] = fmaf(-xs[k], back, fmaf(dys[k] * scale[k], inv, dx[k]));
      }
      store8(a.dx + row * a.width + columns.at[v], dx);
    }
  }
  store_column_sums<Shape>(sums, columns.at, a.width,
                           a.partials + std::int64_t{blockIdx.x} * a.width);
}

constexpr int kSumColumns = 8;
constexpr int kSumRuns = kNormThreads / kSumColumns;

// A block sums eight columns: each of kSumRuns threads every kSumRuns-th partial, then the threads
// in order.
__global__ void __launch_bounds__(kNormThreads)
    partials_kernel(int partials, int width, const float* from, float* dscale) {
  __shared__ float sums[kSumRuns][kSumColumns];
  const int at = static_cast<int>(threadIdx.x) % kSumColumns;
  const int run = static_cast<int>(threadIdx.x) / kSumColumns;
  const int column = static_cast<int>(blockIdx.x) * kSumColumns + at;
  float sum = 0.0F;
#pragma unroll 8
  for (int p = run; p < partials; p += kSumRuns) sum += from[std::int64_t{p} * width + column];
  sums[run][at] = sum;
  __syncthreads();
  if (run != 0) return;
  float total = 0.0F;
#pragma unroll
  for (int r = 0; r < kSumRuns; ++r) total += sums[r][at];
  dscale[column] = total;
}

cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

void sum_norm_partials(const device::Stream& stream, int partials, int width, const float* from,
                       float* dscale) {
  static_assert(kSumColumns == kVector, "widths are multiples of it");
  partials_kernel<<<static_cast<unsigned>(width / kSumColumns), kNormThreads, 0, raw(stream)>>>(
      partials, width, from, dscale);
  device::launched("norm_partials", stream);
}

template <typename T>
void rms_norm_cuda(const device::Stream& stream, const RmsNormCudaArgs<T>& args) {
  with_norm_shape(args.width, [&](auto shape) {
    using Shape = decltype(shape);
    if (args.rows == 0) return;
    const auto blocks = static_cast<unsigned>((args.rows + Shape::kRows - 1) / Shape::kRows);
    norm_kernel<T, Shape><<<blocks, kNormThreads, 0, raw(stream)>>>(args);
    device::launched("rms_norm", stream);
  });
}

template <typename T>
void rms_norm_grad_cuda(const device::Stream& stream, const RmsNormGradCudaArgs<T>& args) {
  with_norm_shape(args.width, [&](auto shape) {
    using Shape = decltype(shape);
    const int blocks = norm_grad_blocks<T, Shape>(args.rows);
    if (blocks > 0) {
      norm_grad_kernel<T, Shape>
          <<<static_cast<unsigned>(blocks), kNormThreads, 0, raw(stream)>>>(args);
      device::launched("rms_norm_grad", stream);
    }
    sum_norm_partials(stream, blocks, args.width, args.partials, args.dscale);
  });
}

template void rms_norm_cuda(const device::Stream&, const RmsNormCudaArgs<float>&);
template void rms_norm_cuda(const device::Stream&, const RmsNormCudaArgs<device::BFloat16>&);
template void rms_norm_grad_cuda(const device::Stream&, const RmsNormGradCudaArgs<float>&);
template void rms_norm_grad_cuda(const device::Stream&,
                                 const RmsNormGradCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
