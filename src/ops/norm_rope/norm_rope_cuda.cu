#include "ops/norm_rope/norm_rope_cuda.hpp"

#include "core/error.hpp"
#include "ops/norm_grad.cuh"

namespace paceline::ops {
namespace {

constexpr int kMaxWidth = 8192;

// Of eight channels: those they are rotated with, and by which angles.
struct Rotation {
  int partner;
  bool first_half;
  float cos[kVector], sin[kVector];

  __device__ Rotation(const RopeTableCuda& rope, std::int32_t position, int c, int head_dim) {
    const int half = head_dim / 2;
    const int within = c % head_dim;
    first_half = within < half;
    partner = first_half ? c + half : c - half;
    const std::int64_t at = std::int64_t{position} * half + within % half;
    load8(rope.cos + at, cos);
    load8(rope.sin + at, sin);
  }
};

// One warp, one row.
template <typename T>
__global__ void __launch_bounds__(kNormWarps* kWarp) norm_rope_kernel(NormRopeCudaArgs<T> args) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kNormWarps + threadIdx.x / kWarp;
  if (row >= args.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int width = args.heads * args.head_dim;
  const T* from = args.x + row * args.x_stride;
  float square = 0.0F;
  for (int c = lane * kVector; c < width; c += kNormColumns) {
    float x[kVector];
    load8(from + c, x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) square += x[j] * x[j];
  }
  square = warp_sum(square);
  const float r = 1.0F / sqrtf(square / static_cast<float>(width) + args.eps);
  if (lane == 0) args.inv_rms[row] = r;
  const std::int32_t position = args.positions[row];
  for (int c = lane * kVector; c < width; c += kNormColumns) {
    const Rotation turn(args.rope, position, c, args.head_dim);
    float x[kVector], scale[kVector], other[kVector], other_scale[kVector];
    load8(from + c, x);
    load8(args.scale + c, scale);
    load8(from + turn.partner, other);
    load8(args.scale + turn.partner, other_scale);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float own = x[j] * r * scale[j];
      const float with = other[j] * r * other_scale[j];
      x[j] = turn.first_half ? own * turn.cos[j] - with * turn.sin[j]
                             : own * turn.cos[j] + with * turn.sin[j];
    }
    store8(args.y + row * width + c, x);
  }
}

template <typename T>
struct NormRopeSource {
  NormRopeGradCudaArgs<T> args;
  const float* scale;
  const float* inv_rms;
  int width;

  __device__ const T* x(std::int64_t row) const { return args.x + row * args.x_stride; }
  // The rotation by the opposite angle.
  __device__ void load(std::int64_t row, int c, float (&g)[kVector]) const {
    const Rotation turn(args.rope, args.positions[row], c, args.head_dim);
    float other[kVector];
    load8(args.dy + row * width + c, g);
    load8(args.dy + row * width + turn.partner, other);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      g[j] = turn.first_half ? g[j] * turn.cos[j] + other[j] * turn.sin[j]
                             : g[j] * turn.cos[j] - other[j] * turn.sin[j];
    }
  }
  __device__ void store(std::int64_t row, int c, float (&dx)[kVector]) const {
    store8(args.dx + row * args.dx_stride + c, dx);
  }
};

void check(std::int64_t rows, int heads, int head_dim) {
  PL_CHECK(rows >= 0 && heads > 0 && head_dim > 0 && head_dim % (2 * kVector) == 0 &&
               heads * head_dim <= kMaxWidth,
           "halves of heads are whole vectors, rows have at most 8192 values");
}

}  // namespace

template <typename T>
void norm_rope_cuda(const device::Stream& stream, const NormRopeCudaArgs<T>& args) {
  check(args.rows, args.heads, args.head_dim);
  if (args.rows == 0) return;
  const auto blocks = static_cast<unsigned>((args.rows + kNormWarps - 1) / kNormWarps);
  norm_rope_kernel<T>
      <<<blocks, kNormWarps * kWarp, 0, static_cast<cudaStream_t>(stream.handle())>>>(args);
  device::launched("norm_rope", stream);
}

template <typename T>
void norm_rope_grad_cuda(const device::Stream& stream, const NormRopeGradCudaArgs<T>& args) {
  check(args.rows, args.heads, args.head_dim);
  launch_norm_grad(stream, args.rows,
                   NormRopeSource<T>{args, args.scale, args.inv_rms, args.heads * args.head_dim},
                   kNormPartials, args.partials, args.dscale, "norm_rope_grad");
}

template void norm_rope_cuda(const device::Stream&, const NormRopeCudaArgs<float>&);
template void norm_rope_cuda(const device::Stream&, const NormRopeCudaArgs<device::BFloat16>&);
template void norm_rope_grad_cuda(const device::Stream&, const NormRopeGradCudaArgs<float>&);
template void norm_rope_grad_cuda(const device::Stream&,
                                  const NormRopeGradCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
