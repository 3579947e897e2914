#include "ops/loss/loss_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr float kTweedieFloor = 1e-6F;

struct Term {
  float loss, gradient;  // by the logit
};

// From the logit of the wrong answer, so that nothing cancels.
__device__ Term cross_entropy(float z, bool label) {
  const float wrong = label ? -z : z;
  const float e = expf(-fabsf(wrong));
  const float p = wrong >= 0.0F ? 1.0F / (1.0F + e) : e / (1.0F + e);
  return {fmaxf(wrong, 0.0F) + log1pf(e) + (z - z), label ? -p : p};
}

// A target that is not a number stays none: fminf and fmaxf would drop it.
__device__ float clipped(float target, float cap) {
  if (!isfinite(target)) return target - target;
  return fminf(fmaxf(target, 0.0F), cap);
}

__device__ Term sigmoid_mae(float z, float target, float cap) {
  const float e = expf(-fabsf(z));
  const float s = z >= 0.0F ? 1.0F / (1.0F + e) : e / (1.0F + e);
  const float off = s - clipped(target, cap) / cap;
  const float sign = off > 0.0F ? 1.0F : (off < 0.0F ? -1.0F : 0.0F);
  return {fabsf(off), sign * s * (1.0F - s)};
}

__device__ Term tweedie(float z, float target, float cap) {
  const float t = clipped(target, cap);
  const float e = expf(-fabsf(z));
  const float soft = fmaxf(z, 0.0F) + log1pf(e);
  const float s = z >= 0.0F ? 1.0F / (1.0F + e) : e / (1.0F + e);
  const float bent = tanhf(soft / cap);
  const float raw = cap * bent;
  const bool floor = raw <= kTweedieFloor;
  const float mu = floor ? kTweedieFloor : raw;
  const float root = sqrtf(mu);
  const float off = root - sqrtf(t);
  const float by_mu = 2.0F * (mu - t) / (mu * root);
  return {4.0F * off * off / root + (z - z), floor ? z - z : by_mu * (1.0F - bent * bent) * s};
}

// One thread, one candidate at a time; block b takes candidates b * kThreads + thread, then those a
// grid further on.
template <typename T>
__global__ void __launch_bounds__(kThreads) loss_kernel(LossCudaArgs<T> args) {
  __shared__ double warps[kThreads / kWarp];
  const std::int64_t count = *args.count;
  const float share = count > 0 ? 1.0F / static_cast<float>(count) : 0.0F;
  const int outputs = args.heads.actions + args.heads.targets;
  double sum = 0.0;
  for (std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; c < args.capacity;
       c += std::int64_t{gridDim.x} * kThreads) {
    T* d = args.d_y + c * args.stride;
    const bool here = c < count;
    const float* y = args.y + c * args.stride;
    const std::uint64_t labels = here ? args.labels[c] : 0;
    for (int o = 0; o < args.stride; ++o) {
      float gradient = 0.0F;
      if (here && o < args.heads.actions) {
        const float weight = args.heads.weights[o];
        if (weight != 0.0F) {
          const Term term =
              cross_entropy(y[o] * args.action_scale, (labels >> args.heads.bits[o] & 1U) != 0);
          sum += static_cast<double>(term.loss) * weight;
          gradient = term.gradient * weight * share * args.action_scale;
        }
      } else if (here && o < outputs) {
        const RegressionHead& head = args.heads.heads[o - args.heads.actions];
        if (head.weight != 0.0F) {
          const Term term = head.loss == RegressionLoss::kSigmoidMae
                                ? sigmoid_mae(y[o], head.target[c], head.cap)
                                : tweedie(y[o], head.target[c], head.cap);
          sum += static_cast<double>(term.loss) * head.weight;
          gradient = term.gradient * head.weight * share;
        }
      }
      if constexpr (sizeof(T) == sizeof(float)) {
        d[o] = gradient;
      } else {
        reinterpret_cast<__nv_bfloat16*>(d)[o] = __float2bfloat16_rn(gradient);
      }
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double all = 0.0;
  for (const double w : warps) all += w;
  args.partials[blockIdx.x] = all;
}

__global__ void finish_kernel(int partials, const double* from, const std::int32_t* count,
                              double* loss) {
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < partials; i += kWarp) sum += from[i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *loss = *count > 0 ? sum / *count : 0.0;
}

}  // namespace

template <typename T>
void loss_cuda(const device::Stream& stream, const LossCudaArgs<T>& args) {
  PL_CHECK(args.stride >= args.heads.actions + args.heads.targets, "a column for each output");
  PL_CHECK(args.capacity > 0, "a batch may have candidates");
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  const std::int64_t wanted = (args.capacity + kThreads - 1) / kThreads;
  const int blocks = static_cast<int>(wanted < kLossPartials ? wanted : kLossPartials);
  loss_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, raw>>>(args);
  device::launched("loss", stream);
  finish_kernel<<<1, kWarp, 0, raw>>>(blocks, args.partials, args.count, args.loss);
  device::launched("loss_sum", stream);
}

template void loss_cuda(const device::Stream&, const LossCudaArgs<float>&);
template void loss_cuda(const device::Stream&, const LossCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
