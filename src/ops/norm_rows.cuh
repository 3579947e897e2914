// Device code of the row norms: how the threads of a block share rows, sums over a row, and the
// scale's gradient as a sum over rows of an order that the shape alone fixes.
#pragma once

#include <cuda_runtime.h>

#include "core/error.hpp"
#include "device/stream.hpp"
#include "ops/rms_norm/rms_norm_cuda.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {

inline constexpr int kNormThreads = 256;  // of a block
inline constexpr int kMaxNormWidth = 8192;

// Lanes threads make a row; each holds Vectors vectors of it in registers.
template <int Lanes, int Vectors>
struct NormShape {
  static constexpr int kLanes = Lanes;
  static constexpr int kVectors = Vectors;
  static constexpr int kRows = kNormThreads / Lanes;  // of a block at a time
  static constexpr int kMaxWidth = Lanes * Vectors * kVector;
};

// Where a thread's vectors lie in a row.
template <typename Shape>
struct NormColumns {
  int at[Shape::kVectors];
  __device__ NormColumns() {
    const int lane = static_cast<int>(threadIdx.x) % Shape::kLanes;
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) at[v] = (v * Shape::kLanes + lane) * kVector;
  }
};

// Calls launch with the shape for rows of `width`.
template <typename Launch>
void with_norm_shape(int width, Launch&& launch) {
  PL_CHECK(width > 0 && width % kVector == 0 && width <= kMaxNormWidth,
           "the width of a norm is a multiple of 8, at most 8192");
  if (width <= NormShape<32, 1>::kMaxWidth) return launch(NormShape<32, 1>{});
  if (width <= NormShape<32, 2>::kMaxWidth) return launch(NormShape<32, 2>{});
  if (width <= NormShape<128, 1>::kMaxWidth) return launch(NormShape<128, 1>{});
  if (width <= NormShape<256, 2>::kMaxWidth) return launch(NormShape<256, 2>{});
  launch(NormShape<256, 4>{});
}

// Blocks of the gradient: all of them run at once on the 132 multiprocessors of an H100 or H200, as
// many on each as the registers of a row allow without spilling; a last wave of a few blocks would
// cost as much as a full one.
template <typename T, typename Shape>
constexpr int norm_blocks_of_processor() {
  constexpr int kBytes = Shape::kVectors * static_cast<int>(sizeof(T));
  return kBytes <= 2 ? 4 : (kBytes <= 4 ? 3 : (kBytes <= 8 ? 2 : 1));
}
template <typename T, typename Shape>
inline constexpr int kNormBlocks = norm_blocks_of_processor<T, Shape>();
inline constexpr int kNormProcessors = 132;
static_assert(4 * kNormProcessors <= kNormPartials);

template <typename T, typename Shape>
int norm_grad_blocks(std::int64_t rows) {
  const std::int64_t groups = (rows + Shape::kRows - 1) / Shape::kRows;
  constexpr int kMost = kNormProcessors * kNormBlocks<T, Shape>;
  return groups < kMost ? static_cast<int>(groups) : kMost;
}

// The sum over the threads of a row, in each of them. All threads of the block call it together.
template <typename Shape>
__device__ float row_sum(float x) {
  constexpr int kInWarp = Shape::kLanes < kWarp ? Shape::kLanes : kWarp;
#pragma unroll
  for (int offset = kInWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  if constexpr (Shape::kLanes > kWarp) {
    constexpr int kWarps = Shape::kLanes / kWarp;
    __shared__ float sums[kNormThreads / kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    __syncthreads();  // the sums before these were read
    if (threadIdx.x % kWarp == 0) sums[warp] = x;
    __syncthreads();
    x = 0.0F;
    for (int w = 0; w < kWarps; ++w) x += sums[warp / kWarps * kWarps + w];
  }
  return x;
}

// Sums over the rows of a block, groups of threads in order, to `partial` [width]. sum[v] is what
// this thread has for the columns from column[v] on; columns past the width count for nothing. All
// threads of the block call it together.
template <typename Shape>
__device__ void store_column_sums(const float (&sum)[Shape::kVectors][kVector],
                                  const int (&column)[Shape::kVectors], int width, float* partial) {
  if constexpr (Shape::kRows == 1) {
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (column[v] < width) store8(partial + column[v], sum[v]);
    }
  } else {
    __shared__ __align__(16) float sums[Shape::kRows * Shape::kMaxWidth];
    const int group = static_cast<int>(threadIdx.x) / Shape::kLanes;
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v) {
      if (column[v] < width) store8(sums + group * width + column[v], sum[v]);
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < width; c += kNormThreads) {
      float total = 0.0F;
#pragma unroll
      for (int g = 0; g < Shape::kRows; ++g) total += sums[g * width + c];
      partial[c] = total;
    }
  }
}

// dscale [width] = the sum of `partials` rows of `from`; none: zeros.
void sum_norm_partials(const device::Stream& stream, int partials, int width, const float* from,
                       float* dscale);

}  // namespace paceline::ops
