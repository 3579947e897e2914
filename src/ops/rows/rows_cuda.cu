#include "ops/rows/rows_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// One warp, one row, of `chunks` 16-byte pieces; bits are copied as they are.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::int64_t n, int chunks, const std::int32_t* index,
                  const uint4* __restrict__ in, uint4* __restrict__ out) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= n) return;
  const std::int64_t from = index[row];
#pragma unroll 4
  for (int c = static_cast<int>(threadIdx.x) % kWarp; c < chunks; c += kWarp) {
    uint4 bits = make_uint4(0, 0, 0, 0);
    if (from >= 0) bits = in[from * chunks + c];
    out[row * chunks + c] = bits;
  }
}

}  // namespace

template <typename T>
void gather_rows_cuda(const device::Stream& stream, std::int64_t n, int width,
                      const std::int32_t* index, const T* in, T* out) {
  PL_CHECK(width >= 0 && width % kVector == 0, "gathered rows have a multiple of 8 columns");
  if (n == 0 || width == 0) return;
  const int chunks = width * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(uint4));
  const auto blocks = static_cast<unsigned>((n + kWarps - 1) / kWarps);
  gather_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(
      n, chunks, index, reinterpret_cast<const uint4*>(in), reinterpret_cast<uint4*>(out));
  device::launched("gather_rows", stream);
}

template void gather_rows_cuda(const device::Stream&, std::int64_t, int, const std::int32_t*,
                               const float*, float*);
template void gather_rows_cuda(const device::Stream&, std::int64_t, int, const std::int32_t*,
                               const device::BFloat16*, device::BFloat16*);

}  // namespace paceline::ops
