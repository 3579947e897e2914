// Where tokens come from, and rows of kinds put in the order of tokens and back.
#include <cuda_runtime.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/norm_rows.cuh"
#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kCopies = 4;  // 16-byte pieces that a thread copies

// The example of a token: the last with cu[example] <= token.
__device__ int example_of(const std::int32_t* cu, int examples, int token) {
  int low = 0;
  int high = examples;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (cu[middle] <= token ? low : high) = middle;
  }
  return low;
}

struct BatchCounts {
  int examples, tokens, history, candidates;
  __device__ explicit BatchCounts(const std::int32_t* counts)
      : examples(counts[0]), tokens(counts[1]), history(counts[2]), candidates(counts[3]) {}
};

// A token's row in the buffer of kinds; a candidate's position is written beside.
__device__ int place_token(const TokenOrderCudaArgs& a, const BatchCounts& n, int token) {
  const int b = example_of(a.cu_tokens, n.examples, token);
  const int at = token - a.cu_tokens[b];
  if (at < a.prefix_tokens) return at * a.example_capacity + b;
  const int history = at - a.prefix_tokens;
  const int first_history = a.prefix_tokens * a.example_capacity;
  if (history < a.history_len[b]) return first_history + a.cu_history[b] + history;
  const int candidate = a.cu_candidates[b] + history - a.history_len[b];
  a.candidate_position[candidate] = a.positions[token];
  return first_history + a.history_capacity + candidate;
}

// True for a row past its kind's entries.
__device__ bool row_is_unused(const TokenOrderCudaArgs& a, const BatchCounts& n, std::int64_t row) {
  const std::int64_t first_history =
      static_cast<std::int64_t>(a.prefix_tokens) * a.example_capacity;
  if (row < first_history) return row % a.example_capacity >= n.examples;
  row -= first_history;
  return row < a.history_capacity ? row >= n.history : row - a.history_capacity >= n.candidates;
}

__global__ void __launch_bounds__(kThreads)
    order_kernel(const __grid_constant__ TokenOrderCudaArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const BatchCounts n(a.counts);
  if (i < n.tokens) {
    const int token = static_cast<int>(i);
    const int row = place_token(a, n, token);
    a.source[token] = row;
    a.token_of[row] = token;
  } else if (i < a.token_capacity) {
    a.source[i] = -1;
    a.positions[i] = 0;
  }
  if (i < a.kind_rows() && row_is_unused(a, n, i)) a.token_of[i] = -1;
  if (i >= n.candidates && i < a.candidate_capacity) a.candidate_position[i] = 0;
  if (i > n.examples && i <= a.example_capacity) {
    a.cu_tokens[i] = a.cu_tokens[n.examples];
    a.cu_history[i] = a.cu_history[n.examples];
    a.cu_candidates[i] = a.cu_candidates[n.examples];
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(kNormThreads)
    assemble_kernel(const __grid_constant__ TokenAssembleCudaArgs<T> a) {
  const NormColumns<Shape> columns;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * Shape::kRows + threadIdx.x / unsigned{Shape::kLanes};
  const bool here = row < a.rows;
  const std::int64_t source = here ? a.source[row] : -1;
  float x[Shape::kVectors][kVector] = {};
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    if (source < 0 || columns.at[v] >= a.width) continue;
    load8(a.kind_rows + source * a.width + columns.at[v], x[v]);
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
    store8(a.h + row * a.width + columns.at[v], x[v]);
    float scale[kVector];
    load8(a.scale + columns.at[v], scale);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[v][k] = x[v][k] * inv * scale[k];
    store8(a.norm + row * a.width + columns.at[v], x[v]);
  }
}

// Rows of `pieces` 16-byte pieces.
__global__ void __launch_bounds__(kThreads)
    disassemble_kernel(std::int64_t rows, int pieces, const std::int32_t* token_of,
                       const uint4* from, uint4* to) {
  const std::int64_t items = rows * pieces;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kThreads * kCopies + threadIdx.x;
  uint4 x[kCopies];
#pragma unroll
  for (int c = 0; c < kCopies; ++c) {
    const std::int64_t i = first + c * kThreads;
    x[c] = make_uint4(0, 0, 0, 0);
    if (i >= items) continue;
    const std::int64_t row = i / pieces;
    const std::int64_t token = token_of[row];
    if (token >= 0) x[c] = from[token * pieces + (i - row * pieces)];
  }
#pragma unroll
  for (int c = 0; c < kCopies; ++c) {
    const std::int64_t i = first + c * kThreads;
    if (i < items) to[i] = x[c];
  }
}

unsigned blocks_of(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

void token_order_cuda(const device::Stream& stream, const TokenOrderCudaArgs& args) {
  PL_CHECK(args.kind_rows() <= INT32_MAX, "rows of all kinds are counted in 31 bits");
  const std::int64_t items = std::max({args.kind_rows(), std::int64_t{args.token_capacity},
                                       std::int64_t{args.example_capacity} + 1});
  order_kernel<<<blocks_of(items, kThreads), kThreads, 0, raw(stream)>>>(args);
  device::launched("token_order", stream);
}

template <typename T>
void token_assemble_cuda(const device::Stream& stream, const TokenAssembleCudaArgs<T>& args) {
  with_norm_shape(args.width, [&](auto shape) {
    using Shape = decltype(shape);
    if (args.rows == 0) return;
    assemble_kernel<T, Shape>
        <<<blocks_of(args.rows, Shape::kRows), kNormThreads, 0, raw(stream)>>>(args);
    device::launched("token_assemble", stream);
  });
}

template <typename T>
void token_disassemble_cuda(const device::Stream& stream, const TokenDisassembleCudaArgs<T>& args) {
  PL_CHECK(args.width > 0 && args.width % kVector == 0, "widths are multiples of 8");
  if (args.rows == 0) return;
  const int pieces = args.width * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(uint4));
  disassemble_kernel<<<blocks_of(args.rows * pieces, kThreads * kCopies), kThreads, 0,
                       raw(stream)>>>(args.rows, pieces, args.token_of,
                                      reinterpret_cast<const uint4*>(args.dh),
                                      reinterpret_cast<uint4*>(args.d_kind_rows));
  device::launched("token_disassemble", stream);
}

template void token_assemble_cuda(const device::Stream&, const TokenAssembleCudaArgs<float>&);
template void token_assemble_cuda(const device::Stream&,
                                  const TokenAssembleCudaArgs<device::BFloat16>&);
template void token_disassemble_cuda(const device::Stream&, const TokenDisassembleCudaArgs<float>&);
template void token_disassemble_cuda(const device::Stream&,
                                     const TokenDisassembleCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
