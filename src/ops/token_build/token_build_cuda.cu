// X and the weights in the order of its columns. A thread makes eight neighbouring columns of a row
// at a time; where they lie in one row of the table, four such are loaded before the first is
// stored.
#include <cuda_runtime.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/token_build/token_build_cuda.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;      // table rows that a thread loads at once
constexpr int kTileGroups = 256;  // groups of eight columns that a block makes
constexpr int kTileItems = 2048;  // groups times entries of a block, about
constexpr int kTableAlign = 4;    // floats of a wide load

// Eight columns of X.
struct Group {
  const std::int32_t* ids = nullptr;  // of the table's row that holds all of them, by entry
  std::int32_t hashes = 0;
  std::int32_t column = 0;  // in the table's row
};

__device__ int columns_of(const TokenInputCuda& in, int table_width) {
  return in.column == TokenColumn::kTableRows ? in.width * table_width : in.width;
}

template <typename T>
__device__ Group group_of(const TokenGatherCudaArgs<T>& a, int first_column) {
  for (int i = 0; i < a.input_count; ++i) {
    const TokenInputCuda in = a.inputs[i];
    const int offset = first_column - in.first_column;
    if (in.column != TokenColumn::kTableRows || offset < 0 || offset >= in.width * a.table_width) {
      continue;
    }
    const int hash = offset / a.table_width;
    const int column = offset - hash * a.table_width;
    if (column + kVector > a.table_width || column % kTableAlign != 0 ||
        a.table_width % kTableAlign != 0) {
      continue;
    }
    return {static_cast<const std::int32_t*>(in.values) + hash, in.width, column};
  }
  return {};
}

// One column of a feature.
template <typename T>
__device__ float value_of(const TokenGatherCudaArgs<T>& a, const TokenInputCuda& in,
                          std::int64_t entry, int column) {
  switch (in.column) {
    case TokenColumn::kTableRows: {
      const int hash = column / a.table_width;
      const std::int64_t row = static_cast<const std::int32_t*>(in.values)[entry * in.width + hash];
      return row < 0 ? 0.0F : a.table[row * a.table_width + column - hash * a.table_width];
    }
    case TokenColumn::kOneHot:
      return static_cast<const std::int32_t*>(in.values)[entry] == column ? 1.0F : 0.0F;
    case TokenColumn::kNumber:
      return static_cast<const float*>(in.values)[entry];
    case TokenColumn::kMask:
      return static_cast<float>(static_cast<const std::uint64_t*>(in.values)[entry] >> column & 1U);
  }
  return 0.0F;
}

// Eight columns of whatever features.
template <typename T>
__device__ void mixed_values(const TokenGatherCudaArgs<T>& a, std::int64_t entry, int first_column,
                             float (&v)[kVector]) {
  int i = 0;
#pragma unroll
  for (int c = 0; c < kVector; ++c) {
    const int column = first_column + c;
    while (i < a.input_count &&
           a.inputs[i].first_column + columns_of(a.inputs[i], a.table_width) <= column) {
      ++i;
    }
    const bool pad = i == a.input_count || column < a.inputs[i].first_column;
    v[c] = pad ? 0.0F : value_of(a, a.inputs[i], entry, column - a.inputs[i].first_column);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ TokenGatherCudaArgs<T> a, int tile_entries) {
  __shared__ Group groups[kTileGroups];
  const int first_group = static_cast<int>(blockIdx.y) * kTileGroups;
  const int n = min(kTileGroups, a.k_padded / kVector - first_group);
  for (int g = static_cast<int>(threadIdx.x); g < n; g += kThreads) {
    groups[g] = group_of(a, (first_group + g) * kVector);
  }
  __syncthreads();
  const std::int64_t count = *a.count;
  const std::int64_t first_entry = static_cast<std::int64_t>(blockIdx.x) * tile_entries;
  const int entries = static_cast<int>(min(std::int64_t{tile_entries}, a.capacity - first_entry));
  const int items = entries * n;
  T* x = a.x + first_entry * a.k_padded + first_group * kVector;
  const auto place = [&](int item) {
    return x + static_cast<std::int64_t>(item / n) * a.k_padded + item % n * kVector;
  };
  for (int i0 = static_cast<int>(threadIdx.x); i0 < items; i0 += kThreads * kInFlight) {
    std::int64_t rows[kInFlight];
    float v[kInFlight][kVector];
#pragma unroll
    for (int b = 0; b < kInFlight; ++b) {
      const int i = i0 + b * kThreads;
      rows[b] = -1;
      if (i >= items) continue;
      const Group& group = groups[i % n];
      const std::int64_t entry = first_entry + i / n;
      if (group.ids != nullptr && entry < count) rows[b] = group.ids[entry * group.hashes];
    }
#pragma unroll
    for (int b = 0; b < kInFlight; ++b) {
#pragma unroll
      for (float& value : v[b]) value = 0.0F;
      if (rows[b] < 0) continue;
      load8(a.table + rows[b] * a.table_width + groups[(i0 + b * kThreads) % n].column, v[b]);
    }
#pragma unroll
    for (int b = 0; b < kInFlight; ++b) {
      const int i = i0 + b * kThreads;
      if (i < items && groups[i % n].ids != nullptr) store8(place(i), v[b]);
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < items; i += kThreads) {
    if (groups[i % n].ids != nullptr) continue;
    float v[kVector] = {};
    const std::int64_t entry = first_entry + i / n;
    if (entry < count) mixed_values(a, entry, (first_group + i % n) * kVector, v);
    store8(place(i), v);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const __grid_constant__ TokenWeightPadCudaArgs<T> a) {
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (at >= static_cast<std::int64_t>(a.model) * a.k_padded) return;
  const std::int64_t row = at / a.k_padded;
  const int first = static_cast<int>(at - row * a.k_padded);
  float v[kVector];
#pragma unroll
  for (int c = 0; c < kVector; ++c) {
    const std::int32_t column = a.weight_column[first + c];
    v[c] = column < 0 ? 0.0F : a.w[row * a.width + column];
  }
  store8(a.padded + at, v);
}

__global__ void __launch_bounds__(kThreads)
    unpad_kernel(const __grid_constant__ TokenWeightUnpadCudaArgs a) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= static_cast<std::int64_t>(a.model) * a.width) return;
  const std::int64_t row = at / a.width;
  a.dw[at] = a.d_padded[row * a.k_padded + a.padded_column[at - row * a.width]];
}

unsigned blocks_of(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace

template <typename T>
void token_gather_cuda(const device::Stream& stream, const TokenGatherCudaArgs<T>& args) {
  PL_CHECK(args.k_padded % kVector == 0, "columns of X are a multiple of 8");
  if (args.capacity == 0 || args.k_padded == 0) return;
  const int groups = args.k_padded / kVector;
  const int tile_entries = std::max(kTileItems / std::min(groups, kTileGroups), 1);
  const dim3 grid(blocks_of(args.capacity, tile_entries), blocks_of(groups, kTileGroups));
  gather_kernel<T><<<grid, kThreads, 0, raw(stream)>>>(args, tile_entries);
  device::launched("token_gather", stream);
}

template <typename T>
void token_weight_pad_cuda(const device::Stream& stream, const TokenWeightPadCudaArgs<T>& args) {
  PL_CHECK(args.k_padded % kVector == 0, "columns of X are a multiple of 8");
  const std::int64_t items = std::int64_t{args.model} * args.k_padded / kVector;
  if (items == 0) return;
  pad_kernel<T><<<blocks_of(items, kThreads), kThreads, 0, raw(stream)>>>(args);
  device::launched("token_weight_pad", stream);
}

void token_weight_unpad_cuda(const device::Stream& stream, const TokenWeightUnpadCudaArgs& args) {
  const std::int64_t items = std::int64_t{args.model} * args.width;
  if (items == 0) return;
  unpad_kernel<<<blocks_of(items, kThreads), kThreads, 0, raw(stream)>>>(args);
  device::launched("token_weight_unpad", stream);
}

template void token_gather_cuda(const device::Stream&, const TokenGatherCudaArgs<float>&);
template void token_gather_cuda(const device::Stream&,
                                const TokenGatherCudaArgs<device::BFloat16>&);
template void token_weight_pad_cuda(const device::Stream&, const TokenWeightPadCudaArgs<float>&);
template void token_weight_pad_cuda(const device::Stream&,
                                    const TokenWeightPadCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
