// Decides on the device whether a step's updates are applied, and with which factors: both updates
// or neither, by one flag, as train::Optimizer::step does on the CPU.
//   applied    = loss, grad_norm and the tables' gradients are finite
//   adam_steps = adam_steps + 1                          when applied
//   grad_scale = clip / grad_norm when clip > 0 and grad_norm > clip, else 1
//   lr = args.lr * factor,  table_lr = args.table_lr * factor
#pragma once

#include <cstdint>

#include "device/stream.hpp"

namespace paceline::ops {

// Written on the device, copied to the host for the log. Not applied: what follows `applied` is 0.
struct StepDecision {
  double loss = 0.0;
  double grad_norm = 0.0;
  std::int64_t adam_steps = 0;  // after this step
  std::int32_t applied = 0;
  float grad_scale = 0.0F;
  double lr = 0.0;        // of the dense parameters
  double table_lr = 0.0;  // of the table's rows
  float step = 0.0F;      // lr / (1 - beta1^adam_steps)
  float spread = 0.0F;    // 1 / sqrt(1 - beta2^adam_steps)
};

struct StepDecideCudaArgs {
  double lr = 0.0, table_lr = 0.0;
  double beta1 = 0.9, beta2 = 0.999;
  double clip = 0.0;  // 0: off
  // Device.
  const double* factor = nullptr;  // the schedule's
  const double* loss = nullptr;
  const double* grad_norm = nullptr;
  const std::int32_t* table_not_finite = nullptr;  // null: no table
  std::int64_t* adam_steps = nullptr;              // updates applied
  StepDecision* decision = nullptr;
};
void step_decide_cuda(const device::Stream& stream, const StepDecideCudaArgs& args);

}  // namespace paceline::ops
