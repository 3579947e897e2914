// Gradients of table rows summed, and rows updated.
//
// table_reduce: a warp per chunk of sorted places. A row within one chunk is done; of rows over
// several chunks the partial sums are kept, the first chunk's in tails, later ones' in heads, and a
// second kernel adds them: a warp per row, a block where a row has many.
#include <cuda_runtime.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/table_adagrad/table_places.cuh"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

static_assert(kTableChunk == kWarp, "a lane holds a place");
constexpr int kReduceWarps = 8;    // of a block
constexpr int kCombineWarps = 16;  // of a block
constexpr int kInFlight = 8;       // rows that a warp loads before it adds the first
constexpr int kWarpParts = 32;     // partial sums that one warp adds; more take a block
constexpr int kApplyWarps = 8;
constexpr int kApplyBlocks = 1056;  // at most; rows do not depend on it
constexpr int kWide = 4;            // columns of a lane where the width allows
static_assert(kWarpParts >= kCombineWarps, "at most one row of a block takes all its warps");

template <int N>
struct Values {
  float v[N] = {};
  __device__ void add(const Values& x) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += x.v[i];
  }
};

__device__ void load(const float* p, Values<1>& x) { x.v[0] = *p; }
__device__ void load(const device::BFloat16* p, Values<1>& x) {
  x.v[0] = __uint_as_float(static_cast<std::uint32_t>(p->bits) << 16);
}
__device__ void load(const float* p, Values<kWide>& x) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  x.v[0] = a.x, x.v[1] = a.y, x.v[2] = a.z, x.v[3] = a.w;
}
__device__ void load(const device::BFloat16* p, Values<kWide>& x) {
  const uint2 a = *reinterpret_cast<const uint2*>(p);
  x.v[0] = __uint_as_float(a.x << 16), x.v[1] = __uint_as_float(a.x & 0xFFFF0000U);
  x.v[2] = __uint_as_float(a.y << 16), x.v[3] = __uint_as_float(a.y & 0xFFFF0000U);
}
__device__ void store(float* p, const Values<1>& x) { *p = x.v[0]; }
__device__ void store(float* p, const Values<kWide>& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}

__device__ int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

// Where whole sums go.
template <int N>
struct SumWriter {
  const TableSumsCuda& sums;
  float scale;
  bool bad = false;

  __device__ void whole(std::int64_t row, int column, Values<N> x) {
#pragma unroll
    for (float& v : x.v) {
      v *= scale;
      bad = bad || !isfinite(v);
    }
    store(sums.g + row * sums.width + column, x);
  }
  // By all lanes of the warp.
  __device__ void report() const {
    if (__any_sync(~0U, bad) && lane_id() == 0) atomicOr(sums.not_finite, 1);
  }
};

// A chunk's places, one per lane.
template <typename T>
struct Chunk {
  std::int64_t number;
  int count;                  // places
  std::int32_t segment;       // of the lane's place
  const T* gradient;          // of the lane's place
  std::int32_t before_first;  // segment of the place before the chunk, -1: none
  std::int32_t after_last;    // of the place after it

  __device__ Chunk(const TableSourcesCuda& sources, const TableIndexCuda& index, std::int64_t chunk,
                   std::int64_t places)
      : number(chunk), count(0), segment(-1), gradient(nullptr), before_first(-1), after_last(-1) {
    const std::int64_t begin = chunk * kTableChunk;
    const std::int64_t end = begin + kTableChunk;
    if (begin >= places) return;
    count = static_cast<int>(min(places - begin, std::int64_t{kTableChunk}));
    if (begin > 0) before_first = index.segment[begin - 1];
    if (end < places) after_last = index.segment[end];
    if (lane_id() >= count) return;
    segment = index.segment[begin + lane_id()];
    const TablePlace place(sources, index.places[begin + lane_id()]);
    gradient = static_cast<const T*>(place.kind->dx) + place.entry * place.kind->k_padded +
               place.lookup->column;
  }
  __device__ std::int32_t segment_of(int i) const { return __shfl_sync(~0U, segment, i); }
  __device__ const T* gradient_of(int i) const {
    return reinterpret_cast<const T*>(
        __shfl_sync(~0U, reinterpret_cast<unsigned long long>(gradient), i));
  }
};

// Columns [column, column + N) of the lane, all places of the chunk in order.
template <typename T, int N>
__device__ void reduce_columns(const Chunk<T>& chunk, int column, SumWriter<N>& out) {
  const TableSumsCuda& sums = out.sums;
  const bool active = column < sums.width;
  Values<N> sum;
  for (int i0 = 0; i0 < chunk.count; i0 += kInFlight) {
    Values<N> x[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const T* from = chunk.gradient_of(i0 + j);
      if (active && i0 + j < chunk.count) load(from + column, x[j]);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int i = i0 + j;
      const std::int32_t segment = chunk.segment_of(i);
      const std::int32_t next = i + 1 < chunk.count ? chunk.segment_of(i + 1) : chunk.after_last;
      if (i >= chunk.count) break;
      sum.add(x[j]);
      const bool ends = next != segment;
      if (!ends && i + 1 < chunk.count) continue;
      const std::int64_t at = chunk.number * sums.width + column;
      if (active && segment == chunk.before_first)
        store(sums.heads + at, sum);
      else if (active && !ends)
        store(sums.tails + at, sum);
      else if (active)
        out.whole(segment, column, sum);
      sum = {};
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kReduceWarps* kWarp)
    reduce_kernel(const __grid_constant__ TableReduceCudaArgs<T> a) {
  const std::int64_t places = a.index.starts[*a.index.unique];
  const Chunk<T> chunk(a.sources, a.index,
                       static_cast<std::int64_t>(blockIdx.x) * kReduceWarps + warp_id(), places);
  if (chunk.count == 0) return;
  SumWriter<N> out{a.sums, a.scale};
  for (int column = 0; column < a.sums.width; column += kWarp * N) {
    reduce_columns(chunk, column + lane_id() * N, out);
  }
  out.report();
}

// A row over several chunks, seen from its first.
struct LongRow {
  std::int64_t row = 0;
  std::int64_t chunk = 0;
  int parts = 0;  // chunks after the first; 0: no such row
};

__device__ LongRow long_row_of(const TableIndexCuda& index, std::int64_t chunk,
                               std::int64_t places) {
  const std::int64_t end = (chunk + 1) * kTableChunk;
  if (end >= places) return {};
  const std::int32_t row = index.segment[end - 1];
  const std::int64_t last = index.starts[row + 1] - 1;
  if (index.starts[row] / kTableChunk != chunk || last < end) return {};
  return {row, chunk, static_cast<int>(last / kTableChunk - chunk)};
}

// sum += rows [0, n) of `parts`, in order.
template <int N>
__device__ void add_parts(const float* parts, int n, int width, Values<N>& sum) {
  int p = 0;
  for (; p + kInFlight <= n; p += kInFlight, parts += std::int64_t{kInFlight} * width) {
    Values<N> x[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) load(parts + static_cast<std::int64_t>(j) * width, x[j]);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) sum.add(x[j]);
  }
  for (; p < n; ++p, parts += width) {
    Values<N> x;
    load(parts, x);
    sum.add(x);
  }
}

// By one warp.
template <int N>
__device__ void combine_short(const LongRow& row, SumWriter<N>& out) {
  const int width = out.sums.width;
  for (int column = lane_id() * N; column < width; column += kWarp * N) {
    const std::int64_t at = row.chunk * width + column;
    Values<N> sum;
    load(out.sums.tails + at, sum);
    add_parts(out.sums.heads + at + width, row.parts, width, sum);
    out.whole(row.row, column, sum);
  }
}

// By a block: each warp adds an equal run of parts, then the first adds the runs.
template <int N>
__device__ void combine_long(const LongRow& row, SumWriter<N>& out) {
  __shared__ __align__(16) float runs[kCombineWarps][kWarp * N];
  const int width = out.sums.width;
  const int run = (row.parts + kCombineWarps - 1) / kCombineWarps;
  const int first = min(warp_id() * run, row.parts);
  const int count = min(run, row.parts - first);
  for (int c0 = 0; c0 < width; c0 += kWarp * N) {
    const int column = c0 + lane_id() * N;
    const std::int64_t at = row.chunk * width + column;
    Values<N> sum;
    if (column < width) {
      if (warp_id() == 0) load(out.sums.tails + at, sum);
      add_parts(out.sums.heads + at + static_cast<std::int64_t>(first + 1) * width, count, width,
                sum);
    }
    store(&runs[warp_id()][lane_id() * N], sum);
    __syncthreads();
    if (warp_id() == 0 && column < width) {
#pragma unroll
      for (int w = 1; w < kCombineWarps; ++w) {
        Values<N> x;
        load(&runs[w][lane_id() * N], x);
        sum.add(x);
      }
      out.whole(row.row, column, sum);
    }
    __syncthreads();
  }
}

template <int N>
__global__ void __launch_bounds__(kCombineWarps* kWarp)
    combine_kernel(const __grid_constant__ TableIndexCuda index,
                   const __grid_constant__ TableSumsCuda sums, float scale) {
  __shared__ LongRow shared;
  if (threadIdx.x == 0) shared = {};
  __syncthreads();
  const std::int64_t places = index.starts[*index.unique];
  const LongRow mine =
      long_row_of(index, static_cast<std::int64_t>(blockIdx.x) * kCombineWarps + warp_id(), places);
  SumWriter<N> out{sums, scale};
  if (mine.parts > kWarpParts) {
    if (lane_id() == 0) shared = mine;
  } else if (mine.parts > 0) {
    combine_short(mine, out);
  }
  __syncthreads();
  const LongRow all = shared;
  if (all.parts > 0) combine_long(all, out);
  out.report();
}

// A warp per row; the first columns of a lane stay in registers.
template <typename Table, int N>
__global__ void __launch_bounds__(kApplyWarps* kWarp)
    apply_kernel(const __grid_constant__ TableApplyCudaArgs<Table> a) {
  if (a.decision->applied == 0) return;
  const int width = a.sums.width;
  const int rows = *a.index.unique;
  const double lr = a.decision->table_lr;
  const int first = lane_id() * N;
  for (std::int64_t u = std::int64_t{blockIdx.x} * kApplyWarps + warp_id(); u < rows;
       u += std::int64_t{gridDim.x} * kApplyWarps) {
    const std::int64_t row = a.index.rows[u];
    const float* gradient = a.sums.g + u * width;
    Table* table = a.table + row * width;
    const float before = a.acc[row];
    Values<N> g0, x0;
    if (first < width) {
      load(gradient + first, g0);
      load(table + first, x0);
    }
    float square = 0.0F;
    const auto add_squares = [&](const Values<N>& g) {
#pragma unroll
      for (const float v : g.v) square = fmaf(v, v, square);
    };
    add_squares(g0);
    for (int c = first + kWarp * N; c < width; c += kWarp * N) {
      Values<N> g;
      load(gradient + c, g);
      add_squares(g);
    }
    const float acc = before + warp_sum(square) / static_cast<float>(width);
    const auto step = static_cast<float>(lr / (sqrt(static_cast<double>(acc)) + a.eps));
    const auto update = [&](int c, const Values<N>& g, Values<N> x) {
#pragma unroll
      for (int i = 0; i < N; ++i) x.v[i] = fmaf(-step, g.v[i], x.v[i]);
      store(table + c, x);
    };
    if (first < width) update(first, g0, x0);
    for (int c = first + kWarp * N; c < width; c += kWarp * N) {
      Values<N> g, x;
      load(gradient + c, g);
      load(table + c, x);
      update(c, g, x);
    }
    if (lane_id() == 0) a.acc[row] = acc;
  }
}

std::int64_t chunks_of(const TableIndexCuda& index) {
  return (index.capacity + kTableChunk - 1) / kTableChunk;
}
unsigned blocks_of(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
cudaStream_t raw(const device::Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

// Calls f with the columns of a lane as a constant.
template <typename F>
void with_columns(int width, F&& f) {
  if (width % kWide == 0 && width > kWarp) return f(std::integral_constant<int, kWide>{});
  f(std::integral_constant<int, 1>{});
}

}  // namespace

TableSumsCuda place_table_sums(device::Arena& arena, const TableIndexCuda& index, int width) {
  TableSumsCuda sums;
  sums.width = width;
  sums.g = arena.take<float>(index.max_unique() * width);
  sums.not_finite = arena.take<std::int32_t>(1);
  sums.heads = arena.take<float>(chunks_of(index) * width);
  sums.tails = arena.take<float>(chunks_of(index) * width);
  return sums;
}

template <typename T>
void table_reduce_cuda(const device::Stream& stream, const TableReduceCudaArgs<T>& args) {
  device::fill_zero(stream, args.sums.not_finite, sizeof(*args.sums.not_finite));
  const std::int64_t chunks = chunks_of(args.index);
  if (chunks == 0) return;
  with_columns(args.sums.width, [&](auto n) {
    reduce_kernel<T, n()>
        <<<blocks_of(chunks, kReduceWarps), kReduceWarps * kWarp, 0, raw(stream)>>>(args);
    device::launched("table_reduce", stream);
    combine_kernel<n()>
        <<<blocks_of(chunks, kCombineWarps), kCombineWarps * kWarp, 0, raw(stream)>>>(
            args.index, args.sums, args.scale);
    device::launched("table_combine", stream);
  });
}

template <typename Table>
void table_apply_cuda(const device::Stream& stream, const TableApplyCudaArgs<Table>& args) {
  if (args.index.capacity == 0) return;
  const unsigned blocks =
      std::min(blocks_of(args.index.max_unique(), kApplyWarps), unsigned{kApplyBlocks});
  with_columns(args.sums.width, [&](auto n) {
    apply_kernel<Table, n()><<<blocks, kApplyWarps * kWarp, 0, raw(stream)>>>(args);
  });
  device::launched("table_apply", stream);
}

template void table_reduce_cuda(const device::Stream&, const TableReduceCudaArgs<float>&);
template void table_reduce_cuda(const device::Stream&,
                                const TableReduceCudaArgs<device::BFloat16>&);
template void table_apply_cuda(const device::Stream&, const TableApplyCudaArgs<float>&);

}  // namespace paceline::ops
