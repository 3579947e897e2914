#include <cuda_runtime.h>

#include "ops/step_decide/step_decide_cuda.hpp"

namespace paceline::ops {
namespace {

__global__ void decide_kernel(const __grid_constant__ StepDecideCudaArgs a) {
  StepDecision d;
  d.loss = *a.loss;
  d.grad_norm = *a.grad_norm;
  d.adam_steps = *a.adam_steps;
  const bool table_finite = a.table_not_finite == nullptr || *a.table_not_finite == 0;
  if (isfinite(d.loss) && isfinite(d.grad_norm) && table_finite) {
    d.applied = 1;
    *a.adam_steps = ++d.adam_steps;
    const auto t = static_cast<double>(d.adam_steps);
    const bool clipped = a.clip > 0.0 && d.grad_norm > a.clip;
    d.grad_scale = static_cast<float>(clipped ? a.clip / d.grad_norm : 1.0);
    d.lr = a.lr * *a.factor;
    d.table_lr = a.table_lr * *a.factor;
    d.step = static_cast<float>(d.lr / (1.0 - pow(a.beta1, t)));
    d.spread = static_cast<float>(1.0 / sqrt(1.0 - pow(a.beta2, t)));
  }
  *a.decision = d;
}

}  // namespace

void step_decide_cuda(const device::Stream& stream, const StepDecideCudaArgs& args) {
  decide_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream.handle())>>>(args);
  device::launched("step_decide", stream);
}

}  // namespace paceline::ops
