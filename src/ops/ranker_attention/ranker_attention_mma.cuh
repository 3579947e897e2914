// Tensor core pieces of the ranker attention: bf16 tiles in shared memory and the two products that
// forward and backward are made of (mma.sync m16n8k16, fp32 sums).
//
// A warp owns 16 rows of a tile. Its fragments: lane = 4 g + t holds, of each 8 columns, columns
// 2t and 2t + 1 of rows g and g + 8.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/ranker_attention/ranker_attention_cuda.cuh"

namespace paceline::ops::attention {

inline constexpr int kOwnRows = 128;  // rows that a block keeps, 16 per warp
inline constexpr int kStepRows = 64;  // rows of the other side, per step
inline constexpr int kMmaThreads = kOwnRows / 16 * 32;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x / 32); }

// A tile of rows of kDim bf16 in shared memory. 16-byte chunk c of row r lies at place c ^ (r % 8),
// so that the eight rows that an ldmatrix reads lie in different banks.
template <int kDim>
struct Tile {
  static constexpr int kChunks = kDim / 8;
  static constexpr int bytes(int rows) { return rows * kDim * 2; }

  std::uint32_t base = 0;  // address in shared memory

  __device__ std::uint32_t at(int row, int chunk) const {
    return base + static_cast<std::uint32_t>(row * kDim * 2 + ((chunk ^ (row & 7)) << 4));
  }
};

// Copies of kBytes behind the caller's back; zeros when not valid, and then `from` is not read.
template <int kBytes>
__device__ inline void copy_async(std::uint32_t to, const void* from, bool valid) {
  const int n = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(n)
                 : "memory");
  }
}
// After it and a barrier, all that the block copied is there.
__device__ inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Starts the copy of kRows rows, those from `rows` on as zeros, by all threads of the block.
template <int kRows, int kDim>
__device__ inline void load_tile(Tile<kDim> to, const BFloat16* from, std::int64_t stride,
                                 int rows) {
  constexpr int kRowsAtOnce = kMmaThreads / Tile<kDim>::kChunks;
  const int first = static_cast<int>(threadIdx.x) / Tile<kDim>::kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % Tile<kDim>::kChunks;
  from += first * stride + chunk * 8;
#pragma unroll
  for (int row = 0; row < kRows; row += kRowsAtOnce) {
    copy_async<16>(to.at(first + row, chunk), from, first + row < rows);
    from += kRowsAtOnce * stride;
  }
}

__device__ inline void ldmatrix(std::uint32_t (&x)[4], std::uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at));
}
__device__ inline void ldmatrix_transposed(std::uint32_t (&x)[4], std::uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at));
}
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

using Scores = float[kStepRows / 8][4];            // 16 own rows x a step's rows
using Weights = std::uint32_t[kStepRows / 16][4];  // the same in bf16, as a left operand
template <int kDim>
using Sums = float[kDim / 8][4];  // 16 own rows x kDim

// scores = own rows [first, first + 16) times the rows of `step`.
template <int kDim>
__device__ inline void multiply_rows(Scores& scores, Tile<kDim> own, int first, Tile<kDim> step) {
  const int lane = lane_id();
#pragma unroll
  for (auto& s : scores) s[0] = s[1] = s[2] = s[3] = 0.0F;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    std::uint32_t a[4];
    ldmatrix(a, own.at(first + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int n = 0; n < kStepRows / 16; ++n) {
      std::uint32_t b[4];
      ldmatrix(b, step.at(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      mma(scores[2 * n], a, b[0], b[1]);
      mma(scores[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// sums += weights times the rows of `step`.
template <int kDim>
__device__ inline void add_weighted(Sums<kDim>& sums, const Weights& weights, Tile<kDim> step) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < kStepRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t b[4];
      ldmatrix_transposed(b, step.at(16 * k + lane % 16, 2 * n + lane / 16));
      mma(sums[2 * n], weights[k], b[0], b[1]);
      mma(sums[2 * n + 1], weights[k], b[2], b[3]);
    }
  }
}

__device__ inline void to_weights(Weights& w, const Scores& s) {
#pragma unroll
  for (int k = 0; k < kStepRows / 16; ++k) {
    w[k][0] = pack(s[2 * k][0], s[2 * k][1]);
    w[k][1] = pack(s[2 * k][2], s[2 * k][3]);
    w[k][2] = pack(s[2 * k + 1][0], s[2 * k + 1][1]);
    w[k][3] = pack(s[2 * k + 1][2], s[2 * k + 1][3]);
  }
}

// The product of two rows, by the four lanes of a row; each gets it.
template <int kDim>
__device__ inline float row_product(const BFloat16* x, const BFloat16* y) {
  const int t = lane_id() % 4;
  float sum = 0.0F;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    const float2 a = load2(x + 8 * n + 2 * t);
    const float2 b = load2(y + 8 * n + 2 * t);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  }
  sum += __shfl_xor_sync(~0U, sum, 1);
  return sum + __shfl_xor_sync(~0U, sum, 2);
}

// Writes sums times the factor of its row to the first `rows` of 16 rows at `to`, through the
// warp's own rows of a tile, in 16-byte pieces.
template <int kDim>
__device__ inline void store_sums(const Sums<kDim>& sums, float factor_low, float factor_high,
                                  Tile<kDim> staging, int first, BFloat16* to, std::int64_t stride,
                                  int rows) {
  const int g = lane_id() / 4;
  const auto t = static_cast<std::uint32_t>(lane_id() % 4);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(staging.at(first + g, n) + 4 * t),
                 "r"(pack(sums[n][0] * factor_low, sums[n][1] * factor_low))
                 : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(staging.at(first + g + 8, n) + 4 * t),
                 "r"(pack(sums[n][2] * factor_high, sums[n][3] * factor_high))
                 : "memory");
  }
  __syncwarp();
  constexpr int kChunks = Tile<kDim>::kChunks;
#pragma unroll
  for (int i = lane_id(); i < 16 * kChunks; i += 32) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    if (row >= rows) continue;
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(staging.at(first + row, chunk))
                 : "memory");
    reinterpret_cast<uint4*>(to + row * stride)[chunk] = x;
  }
}

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Launches a kernel of kMmaThreads threads that needs `bytes` of shared memory.
template <typename Args>
void launch_mma(void (*kernel)(Args), const char* name, dim3 grid, int bytes, const Args& args,
                const device::Stream& stream) {
  device::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                "cudaFuncSetAttribute");
  kernel<<<grid, kMmaThreads, static_cast<std::size_t>(bytes), raw(stream)>>>(args);
  device::launched(name, stream);
}

}  // namespace paceline::ops::attention
