// Linear layer without bias: y = x w^T.
//
// Row-major fp32. x [rows, in] with row stride x_stride (elements), w [out, in] dense, y [rows,
// out] with row stride y_stride. The backward is two calls:
//   data:   dx = dy w        (+ dx when accumulate)
//   weight: dw = dy^T x      (+ dw when accumulate)
// A row's result is the same bits whatever the number of rows and its place among them: rows go
// through fixed tiles, the last one zero-padded. The weight gradient adds fixed chunks of rows in
// order. No aliasing between inputs and outputs. Does not block, does not fail.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

struct LinearArgs {
  std::int64_t rows = 0;
  int in = 0;
  int out = 0;
  const float* x = nullptr;  // [rows, in]
  std::int64_t x_stride = 0;
  const float* w = nullptr;  // [out, in]
  float* y = nullptr;        // [rows, out]
  std::int64_t y_stride = 0;
  bool accumulate = false;  // y += instead of y =
};

struct LinearDataGradArgs {
  std::int64_t rows = 0;
  int in = 0;
  int out = 0;
  const float* dy = nullptr;  // [rows, out]
  std::int64_t dy_stride = 0;
  const float* w = nullptr;  // [out, in]
  float* dx = nullptr;       // [rows, in]
  std::int64_t dx_stride = 0;
  bool accumulate = false;
};

struct LinearWeightGradArgs {
  std::int64_t rows = 0;
  int in = 0;
  int out = 0;
  const float* x = nullptr;  // [rows, in]
  std::int64_t x_stride = 0;
  const float* dy = nullptr;  // [rows, out]
  std::int64_t dy_stride = 0;
  float* dw = nullptr;  // [out, in]
  bool accumulate = false;
};

void linear_cpu(Context& ctx, const LinearArgs& args);
void linear_data_grad_cpu(Context& ctx, const LinearDataGradArgs& args);
void linear_weight_grad_cpu(Context& ctx, const LinearWeightGradArgs& args);

}  // namespace paceline::ops
