#include "ops/loss/loss_cuda.hpp"

#include "core/error.hpp"
#include "ops/vectors.cuh"

namespace paceline::ops {
namespace {

constexpr int kThreads = 256;
constexpr float kTweedieFloor = 1e-6F;

struct Term {
  float loss = 0.0F, slope = 0.0F;  // and its derivative by the logit
};

// sigmoid(|z|) and sigmoid(-|z|): neither loses digits to a difference from one.
struct Sigmoids {
  float e, larger, smaller;  // e^-|z|
  __device__ explicit Sigmoids(float z)
      : e(expf(-fabsf(z))), larger(1.0F / (1.0F + e)), smaller(e * larger) {}
  __device__ float of(float z) const { return z >= 0.0F ? larger : smaller; }
};

// NaN for what is not finite, else 0: such a logit or target is never hidden by a limit.
__device__ float poison(float x) { return x - x; }

__device__ float clip(float t, float cap) { return t < 0.0F ? 0.0F : (t > cap ? cap : t); }

// -z of a positive is the logit of the wrong answer.
__device__ Term cross_entropy(float z, bool positive) {
  const float wrong = positive ? -z : z;
  const Sigmoids s(wrong);
  const float slope = s.of(wrong);
  return {fmaxf(wrong, 0.0F) + log1pf(s.e) + poison(z), positive ? -slope : slope};
}

__device__ Term sigmoid_mae(float z, float target, float cap) {
  const Sigmoids s(z);
  const float off = s.of(z) - clip(target, cap) / cap;
  const float sign = off > 0.0F ? 1.0F : (off < 0.0F ? -1.0F : 0.0F);
  return {fabsf(off) + poison(z) + poison(target), sign * s.larger * s.smaller};
}

// With v = softplus(z) / cap: 1 - tanh(v)^2 = 4 q / (1 + q)^2, q = e^-2v.
__device__ Term tweedie(float z, float target, float cap) {
  const Sigmoids s(z);
  const float t = clip(target, cap);
  const float v = (fmaxf(z, 0.0F) + log1pf(s.e)) / cap;
  const float raw = cap * tanhf(v);
  const float mu = raw < kTweedieFloor ? kTweedieFloor : raw;
  const float root = sqrtf(mu);
  const float gap = (mu - t) / (root + sqrtf(t));
  const float q = expf(-2.0F * v);
  const float by_z = 4.0F * q / ((1.0F + q) * (1.0F + q)) * s.of(z);
  const float slope = raw < kTweedieFloor ? 0.0F : 2.0F * (mu - t) / (mu * root) * by_z;
  return {4.0F * gap * gap / root + poison(z) + poison(target), slope};
}

__device__ void store1(float* to, float x) { *to = x; }
__device__ void store1(device::BFloat16* to, float x) {
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

struct Output {
  float weight = 0.0F;
  float factor = 1.0F;  // logit / y
  Term term;
};

// Column `o` of a candidate, whose y is at `at`; with weight 0 it is not read.
template <typename T>
__device__ Output output_of(const LossCudaArgs<T>& a, std::int64_t candidate, int o,
                            std::int64_t at) {
  Output out;
  if (o < a.heads.actions) {
    out.weight = a.heads.weights[o];
    out.factor = a.action_scale;
    if (out.weight == 0.0F) return out;
    const bool positive = (a.labels[candidate] >> a.heads.bits[o] & 1U) != 0;
    out.term = cross_entropy(a.y[at] * out.factor, positive);
  } else if (o < a.heads.actions + a.heads.targets) {
    const RegressionHead head = a.heads.heads[o - a.heads.actions];
    out.weight = head.weight;
    if (out.weight == 0.0F) return out;
    const float target = head.target[candidate];
    out.term = head.loss == RegressionLoss::kSigmoidMae ? sigmoid_mae(a.y[at], target, head.cap)
                                                        : tweedie(a.y[at], target, head.cap);
  }
  return out;
}

// One thread, one output of a candidate at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads) loss_kernel(const __grid_constant__ LossCudaArgs<T> a) {
  const std::int64_t count = *a.count;
  const auto candidates = static_cast<float>(count);
  const std::int64_t size = a.capacity * a.stride;
  double sum = 0.0;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; at < size;
       at += std::int64_t{kLossPartials} * kThreads) {
    const std::int64_t candidate = at / a.stride;
    float gradient = 0.0F;
    if (candidate < count) {
      const Output out = output_of(a, candidate, static_cast<int>(at - candidate * a.stride), at);
      if (out.weight != 0.0F) {
        sum += static_cast<double>(out.weight) * static_cast<double>(out.term.loss);
        gradient = out.weight / candidates * out.factor * out.term.slope;
      }
    }
    store1(a.d_y + at, gradient);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) a.partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kLossPartials)
    sum_kernel(const double* partials, const std::int32_t* count, double* loss) {
  const double sum = block_sum<kLossPartials>(partials[threadIdx.x]);
  if (threadIdx.x == 0) *loss = *count == 0 ? 0.0 : sum / static_cast<double>(*count);
}

}  // namespace

template <typename T>
void loss_cuda(const device::Stream& stream, const LossCudaArgs<T>& args) {
  PL_CHECK(args.stride >= args.heads.actions + args.heads.targets,
           "a row of y has a column for every output");
  const auto raw = static_cast<cudaStream_t>(stream.handle());
  loss_kernel<T><<<kLossPartials, kThreads, 0, raw>>>(args);
  device::launched("loss", stream);
  sum_kernel<<<1, kLossPartials, 0, raw>>>(args.partials, args.count, args.loss);
  device::launched("loss_sum", stream);
}

template void loss_cuda(const device::Stream&, const LossCudaArgs<float>&);
template void loss_cuda(const device::Stream&, const LossCudaArgs<device::BFloat16>&);

}  // namespace paceline::ops
