#include <cuda_runtime.h>

#include "ops/global_norm/global_norm_cuda.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 4;

// A block sums one of kGlobalNormPartials equal runs.
__global__ void __launch_bounds__(kThreads)
    squares_kernel(std::int64_t n, std::int64_t run, const float* g, double* partials) {
  const std::int64_t begin = blockIdx.x * run;
  const std::int64_t end = min(begin + run, n);
  double low = 0.0, high = 0.0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * kWide; i + kWide <= end; i += kThreads * kWide) {
    const float4 x = *reinterpret_cast<const float4*>(g + i);
    low = fma(static_cast<double>(x.x), static_cast<double>(x.x), low);
    high = fma(static_cast<double>(x.y), static_cast<double>(x.y), high);
    low = fma(static_cast<double>(x.z), static_cast<double>(x.z), low);
    high = fma(static_cast<double>(x.w), static_cast<double>(x.w), high);
  }
  if (threadIdx.x == 0 && begin < end) {
    for (std::int64_t i = end - (end - begin) % kWide; i < end; ++i) {
      low = fma(static_cast<double>(g[i]), static_cast<double>(g[i]), low);
    }
  }
  const double sum = block_sum<kThreads>(low + high);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kGlobalNormPartials)
    norm_kernel(const double* partials, double* norm) {
  const double sum = block_sum<kGlobalNormPartials>(partials[threadIdx.x]);
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

}  // namespace

void global_norm_cuda(const device::Stream& stream, std::int64_t n, const float* g,
                      double* partials, double* norm) {
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  constexpr std::int64_t kStep = std::int64_t{kGlobalNormPartials} * kWide;
  const std::int64_t run = (n + kStep - 1) / kStep * kWide;
  squares_kernel<<<kGlobalNormPartials, kThreads, 0, raw>>>(n, run, g, partials);
  device::launched("global_norm_squares", stream);
  norm_kernel<<<1, kGlobalNormPartials, 0, raw>>>(partials, norm);
  device::launched("global_norm", stream);
}

}  // namespace paceline::ops
