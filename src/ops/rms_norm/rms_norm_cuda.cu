#include "ops/rms_norm/rms_norm_cuda.hpp"

#include "core/error.hpp"
#include "ops/norm_grad.cuh"

namespace paceline::ops {
namespace {

constexpr int kMaxWidth = 8192;

// One warp, one row.
template <typename T>
__global__ void __launch_bounds__(kNormWarps* kWarp) rms_norm_kernel(RmsNormCudaArgs<T> args) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kNormWarps + threadIdx.x / kWarp;
  if (row >= args.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* from = args.x + row * args.width;
  float square = 0.0F;
  for (int c = lane * kVector; c < args.width; c += kNormColumns) {
    float x[kVector];
    load8(from + c, x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) square += x[j] * x[j];
  }
  square = warp_sum(square);
  const float r = 1.0F / sqrtf(square / static_cast<float>(args.width) + args.eps);
  if (lane == 0) args.inv_rms[row] = r;
  for (int c = lane * kVector; c < args.width; c += kNormColumns) {
    float x[kVector], scale[kVector];
    load8(from + c, x);
    load8(args.scale + c, scale);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] = x[j] * r * scale[j];
    store8(args.y + row * args.width + c, x);
  }
}

template <typename T>
struct RmsNormSource {
  RmsNormGradCudaArgs<T> args;
  const float* scale;
  const float* inv_rms;
  int width;

  __device__ const T* x(std::int64_t row) const { return args.x + row * width; }
  // Row of the shorter matrix, below 0: none.
  __device__ std::int32_t extra_row(std::int64_t row) const {
    return args.extra.index == nullptr ? -1 : args.extra.index[row] - args.extra.first;
  }
  __device__ void add(const T* from, std::int64_t row, int c, float (&to)[kVector]) const {
    float more[kVector];
    load8(from + row * width + c, more);
#pragma unroll
    for (int j = 0; j < kVector; ++j) to[j] += more[j];
  }
  __device__ void load(std::int64_t row, int c, float (&g)[kVector]) const {
    load8(args.dy + row * width + c, g);
    if (const std::int32_t e = extra_row(row); e >= 0) add(args.extra.dy, e, c, g);
  }
  __device__ void store(std::int64_t row, int c, float (&dx)[kVector]) const {
    if (args.residual != nullptr) add(args.residual, row, c, dx);
    if (const std::int32_t e = extra_row(row); e >= 0) add(args.extra.residual, e, c, dx);
    store8(args.dx + row * width + c, dx);
  }
};

void check(std::int64_t rows, int width) {
  PL_CHECK(rows >= 0 && width > 0 && width % kVector == 0 && width <= kMaxWidth,
           "whole vectors, at most 8192 values");
}

}  // namespace

template <typename T>
void rms_norm_cuda(const device::Stream& stream, const RmsNormCudaArgs<T>& args) {
  check(args.rows, args.width);
  if (args.rows == 0) return;
  const auto blocks = static_cast<unsigned>((args.rows + kNormWarps - 1) / kNormWarps);
  rms_norm_kernel<T>
      <<<blocks, kNormWarps * kWarp, 0, static_cast<cudaStream_t>(stream.handle())>>>(args);
  device::launched("rms_norm", stream);
}

template <typename T>
void rms_norm_grad_cuda(const device::Stream& stream, const RmsNormGradCudaArgs<T>& args) {
  check(args.rows, args.width);
  launch_norm_grad(stream, args.rows, RmsNormSource<T>{args, args.scale, args.inv_rms, args.width},
                   kNormPartials, args.partials, args.dscale, "rms_norm_grad");
}

template void rms_norm_cuda(const device::Stream&, const RmsNormCudaArgs<float>&);
template void rms_norm_cuda(const device::Stream&, const RmsNormCudaArgs<device::BFloat16>&);
template void rms_norm_grad_cuda(const device::Stream&, const RmsNormGradCudaArgs<float>&);
template void rms_norm_grad_cuda(const device::Stream&,
                                 const RmsNormGradCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
