// The ops of the ranker as a table, one per device kind: the model calls through it and knows no
// device. A missing entry is a defect (op_table_test.cpp).
#pragma once

#include "ops/adamw/adamw.hpp"
#include "ops/gelu/gelu.hpp"
#include "ops/global_norm/global_norm.hpp"
#include "ops/linear/linear.hpp"
#include "ops/loss/loss.hpp"
#include "ops/norm_rope/norm_rope.hpp"
#include "ops/ranker_attention/ranker_attention.hpp"
#include "ops/rms_norm/rms_norm.hpp"
#include "ops/rows/rows.hpp"
#include "ops/table_adagrad/table_adagrad.hpp"
#include "ops/token_build/token_build.hpp"

namespace paceline::ops {

struct OpTable {
  void (*linear)(Context&, const LinearArgs&);
  void (*linear_data_grad)(Context&, const LinearDataGradArgs&);
  void (*linear_weight_grad)(Context&, const LinearWeightGradArgs&);
  void (*rms_norm)(Context&, const RmsNormArgs&);
  void (*rms_norm_grad)(Context&, const RmsNormGradArgs&);
  void (*norm_rope)(Context&, const NormRopeArgs&);
  void (*norm_rope_grad)(Context&, const NormRopeGradArgs&);
  void (*ranker_attention)(Context&, const AttentionArgs&);
  void (*ranker_attention_grad)(Context&, const AttentionGradArgs&);
  void (*gelu)(Context&, std::int64_t n, const float* x, float* y);
  void (*gelu_grad)(Context&, std::int64_t n, const float* x, const float* dy, float* dx);
  void (*token_build)(Context&, const TokenBuildArgs&);
  void (*token_build_grad)(Context&, const TokenBuildGradArgs&);
  double (*loss)(Context&, const LossArgs&);
  double (*global_norm)(Context&, std::int64_t n, const float* g);
  void (*adamw)(Context&, const AdamWArgs&);
  void (*table_dedup)(Context&, std::int64_t n, const std::int32_t* lookups, TableRowIndex&);
  void (*table_adagrad)(Context&, const TableAdagradArgs&);
  bool (*table_grad_finite)(Context&, const TableAdagradArgs&);
  void (*gather_rows)(Context&, std::int64_t n, int width, const std::int32_t* index,
                      const float* in, float* out);
  void (*scatter_add_rows)(Context&, std::int64_t n, int width, const std::int32_t* index,
                           const float* in, float* out);
};

const OpTable& cpu_ops();

}  // namespace paceline::ops
