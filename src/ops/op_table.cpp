#include "ops/op_table.hpp"

namespace paceline::ops {

const OpTable& cpu_ops() {
  static constexpr OpTable kTable{
      .linear = linear_cpu,
      .linear_data_grad = linear_data_grad_cpu,
      .linear_weight_grad = linear_weight_grad_cpu,
      .rms_norm = rms_norm_cpu,
      .rms_norm_grad = rms_norm_grad_cpu,
      .norm_rope = norm_rope_cpu,
      .norm_rope_grad = norm_rope_grad_cpu,
      .ranker_attention = ranker_attention_cpu,
      .ranker_attention_grad = ranker_attention_grad_cpu,
      .gelu = gelu_cpu,
      .gelu_grad = gelu_grad_cpu,
      .token_build = token_build_cpu,
      .token_build_grad = token_build_grad_cpu,
      .loss = loss_cpu,
      .global_norm = global_norm_cpu,
      .adamw = adamw_cpu,
      .table_dedup = table_dedup_cpu,
      .table_adagrad = table_adagrad_cpu,
      .table_grad_finite = table_grad_finite_cpu,
      .gather_rows = gather_rows_cpu,
      .scatter_add_rows = scatter_add_rows_cpu,
  };
  return kTable;
}

}  // namespace paceline::ops
