// Device code shared by the gradients of row norms. A Source says what flows into a row's norm:
//   load(row, column, g)             eight gradients by the normed and scaled values
//   x(row), scale, inv_rms, width
//   store(row, column, dx)           eight gradients by x
// dx = r s g - x r^3 / width * sum(s g x),  dscale = sum over rows of g x r.
#pragma once

#include "ops/vectors.cuh"

namespace paceline::ops {

inline constexpr int kNormWarps = 8;  // of a block
inline constexpr int kNormColumns = kWarp * kVector;

// One warp, one row.
template <typename Source>
__global__ void __launch_bounds__(kNormWarps* kWarp) norm_rows_kernel(std::int64_t rows, Source s) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kNormWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float dot = 0.0F;
  for (int c = lane * kVector; c < s.width; c += kNormColumns) {
    float g[kVector], x[kVector], scale[kVector];
    s.load(row, c, g);
    load8(s.x(row) + c, x);
    load8(s.scale + c, scale);
#pragma unroll
    for (int j = 0; j < kVector; ++j) dot += g[j] * scale[j] * x[j];
  }
  dot = warp_sum(dot);
  const float r = s.inv_rms[row];
  const float back = r * r * r * dot / static_cast<float>(s.width);
  for (int c = lane * kVector; c < s.width; c += kNormColumns) {
    float g[kVector], x[kVector], scale[kVector];
    s.load(row, c, g);
    load8(s.x(row) + c, x);
    load8(s.scale + c, scale);
#pragma unroll
    for (int j = 0; j < kVector; ++j) g[j] = r * scale[j] * g[j] - back * x[j];
    s.store(row, c, g);
  }
}

// Block (p, slab): columns of the slab, rows p * kNormWarps + warp and those a grid further on.
template <typename Source>
__global__ void __launch_bounds__(kNormWarps* kWarp)
    norm_scale_kernel(std::int64_t rows, Source s, float* partials) {
  __shared__ float sums[kNormWarps][kNormColumns];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int c = static_cast<int>(blockIdx.y) * kNormColumns + lane * kVector;
  float sum[kVector] = {};
  if (c < s.width) {
    for (std::int64_t row = std::int64_t{blockIdx.x} * kNormWarps + warp; row < rows;
         row += std::int64_t{gridDim.x} * kNormWarps) {
      float g[kVector], x[kVector];
      s.load(row, c, g);
      load8(s.x(row) + c, x);
      const float r = s.inv_rms[row];
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] += g[j] * x[j] * r;
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) sums[warp][lane * kVector + j] = sum[j];
  __syncthreads();
  const int column = static_cast<int>(blockIdx.y) * kNormColumns + static_cast<int>(threadIdx.x);
  if (column >= s.width) return;
  float all = 0.0F;
  for (int w = 0; w < kNormWarps; ++w) all += sums[w][threadIdx.x];
  partials[std::int64_t{blockIdx.x} * s.width + column] = all;
}

// dscale[column] = sum of the partials in order: kNormWarps runs of them, then the runs.
static __global__ void __launch_bounds__(kNormWarps* kWarp)
    norm_scale_sum_kernel(int partials, int width, const float* from, float* dscale) {
  __shared__ float runs[kNormWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int run = static_cast<int>(threadIdx.x) / kWarp;
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  const int each = (partials + kNormWarps - 1) / kNormWarps;
  const int end = min(partials, (run + 1) * each);
  float sum = 0.0F;
  if (column < width) {
    for (int p = run * each; p < end; ++p) sum += from[std::int64_t{p} * width + column];
  }
  runs[run][lane] = sum;
  __syncthreads();
  if (run != 0 || column >= width) return;
  float all = 0.0F;
  for (int i = 0; i < kNormWarps; ++i) all += runs[i][lane];
  dscale[column] = all;
}

// The three launches. Partials: at most `most`, a function of rows alone. A Source may store where
// it loads from, so the scale's gradient comes first.
template <typename Source>
void launch_norm_grad(const device::Stream& stream, std::int64_t rows, const Source& source,
                      int most, float* partials, float* dscale, const char* name) {
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  constexpr int kThreads = kNormWarps * kWarp;
  const std::int64_t groups = (rows + kNormWarps - 1) / kNormWarps;
  const auto blocks = static_cast<unsigned>(groups < most ? groups : most);
  const auto slabs = static_cast<unsigned>((source.width + kNormColumns - 1) / kNormColumns);
  const auto sums = static_cast<unsigned>((source.width + kWarp - 1) / kWarp);
  if (rows > 0) {
    norm_scale_kernel<<<dim3(blocks, slabs), kThreads, 0, raw>>>(rows, source, partials);
    device::launched(name, stream);
  }
  norm_scale_sum_kernel<<<sums, kThreads, 0, raw>>>(rows > 0 ? static_cast<int>(blocks) : 0,
                                                    source.width, partials, dscale);
  device::launched(name, stream);
  if (rows == 0) return;
  norm_rows_kernel<<<static_cast<unsigned>(groups), kThreads, 0, raw>>>(rows, source);
  device::launched(name, stream);
}

}  // namespace paceline::ops
