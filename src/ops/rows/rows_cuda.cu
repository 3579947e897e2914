#include "ops/rows/rows_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;

// One thread, one vector of a row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::int64_t vectors, int per_row, const std::int32_t* index, const T* in,
                  T* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const std::int32_t from = index[i / per_row];
  float v[kVector] = {};
  if (from >= 0) load8(in + (std::int64_t{from} * per_row + i % per_row) * kVector, v);
  store8(out + i * kVector, v);
}

}  // namespace

template <typename T>
void gather_rows_cuda(const device::Stream& stream, std::int64_t n, int width,
                      const std::int32_t* index, const T* in, T* out) {
  PL_CHECK(width > 0 && width % kVector == 0, "whole vectors");
  if (n == 0) return;
  const int per_row = width / kVector;
  const std::int64_t vectors = n * per_row;
  const auto blocks = static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
  gather_kernel<T><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(
      vectors, per_row, index, in, out);
  device::launched("gather_rows", stream);
}

template void gather_rows_cuda(const device::Stream&, std::int64_t, int, const std::int32_t*,
                               const float*, float*);
template void gather_rows_cuda(const device::Stream&, std::int64_t, int, const std::int32_t*,
                               const device::BFloat16*, device::BFloat16*);

}  // namespace paceline::ops
