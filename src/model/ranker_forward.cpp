// Blocks, head and loss, forward.
#include <cmath>

#include "model/ranker_impl.hpp"

namespace paceline::model {
void Ranker::Impl::linear(ops::Context& ctx, std::int64_t rows, int in, int out, const float* x,
                          const float* w, float* y, std::int64_t y_stride, bool accumulate) const {
  ops::LinearArgs args;
  args.rows = rows;
  args.in = in;
  args.out = out;
  args.x = x;
  args.x_stride = in;
  args.w = w;
  args.y = y;
  args.y_stride = y_stride;
  args.accumulate = accumulate;
  ops.linear(ctx, args);
}

ops::AttentionShape Ranker::Impl::attention_shape(int layer, const features::Batch& batch) const {
  ops::AttentionShape shape;
  shape.examples = batch.examples();
  shape.cu_rows = batch.cu_tokens().data();
  shape.cu_candidates = batch.cu_candidates().data();
  shape.query_heads = config.query_heads;
  shape.key_heads = config.key_heads;
  shape.head_dim = config.head_dim;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  shape.causal = config.causal;
  shape.cap_kind = config.cap_kind;
  shape.cap = static_cast<float>(config.cap);
  shape.candidates_only = is_last(layer);
  return shape;
}

const std::int32_t* Ranker::Impl::query_positions(int layer, const features::Batch& batch) const {
  return is_last(layer) ? act.candidate_positions : batch.positions().data();
}

void Ranker::Impl::scale_actions(float* values) const {
  const auto scale = static_cast<float>(action_scale(config.width));
  for (std::int64_t c = 0; c < candidates; ++c) {
    for (int a = 0; a < actions; ++a) values[c * outputs() + a] *= scale;
  }
}

void Ranker::Impl::project_qkv(ops::Context& ctx, const Params& params, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const float* w = params.at(offsets[l].qkv);
  const int q = config.query_width();
  const int kv = 2 * config.key_width();
  if (!is_last(layer)) {
    linear(ctx, tokens, config.width, q + kv, b.norm, w, b.q_raw, b.q_stride);
    return;
  }
  const std::int32_t* rows = act.token_index[static_cast<std::size_t>(schema.candidate_kind())];
  ops.gather_rows(ctx, candidates, config.width, rows, b.norm, b.query_in);
  linear(ctx, candidates, config.width, q, b.query_in, w, b.q_raw, b.q_stride);
  linear(ctx, tokens, config.width, kv, b.norm, w + std::int64_t{q} * config.width, b.k_raw,
         b.kv_stride);
}

void Ranker::Impl::mlp_forward(ops::Context& ctx, const Params& params, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const std::int64_t rows = rows_of(layer);
  ops.rms_norm(ctx, {rows, config.width, eps, b.h_mid, params.at(offsets[l].mlp_norm), b.mlp_norm,
                     b.mlp_rms});
  linear(ctx, rows, config.width, config.ffn, b.mlp_norm, params.at(offsets[l].up), b.mlp_up,
         config.ffn);
  ops.gelu(ctx, rows * config.ffn, b.mlp_up, b.mlp_act);
  if (b.h_out != b.h_mid) {
    ops.gather_rows(ctx, rows, config.width, act.all_rows, b.h_mid, b.h_out);
  }
  linear(ctx, rows, config.ffn, config.width, b.mlp_act, params.at(offsets[l].down), b.h_out,
         config.width, true);
}

void Ranker::Impl::block_forward(ops::Context& ctx, const Params& params, int layer,
                                 const features::Batch& batch) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const BlockOffsets& at = offsets[l];
  const std::int64_t rows = rows_of(layer);
  const std::int64_t q = config.query_width();
  const std::int64_t k = config.key_width();
  ops.rms_norm(ctx, {tokens, config.width, eps, b.h, params.at(at.norm), b.norm, b.norm_rms});
  project_qkv(ctx, params, layer);
  ops.norm_rope(ctx, {rows, config.query_heads, config.head_dim, eps, b.q_raw, b.q_stride,
                      params.at(at.q_norm), query_positions(layer, batch), &rope, b.q, b.q_rms});
  ops.norm_rope(ctx, {tokens, config.key_heads, config.head_dim, eps, b.k_raw, b.kv_stride,
                      params.at(at.k_norm), batch.positions().data(), &rope, b.k, b.k_rms});
  ops.ranker_attention(
      ctx, {attention_shape(layer, batch), b.q, q, b.k, k, b.v, b.kv_stride, b.o, q, b.lse});
  if (is_last(layer)) {
    const std::int32_t* index = act.token_index[static_cast<std::size_t>(schema.candidate_kind())];
    ops.gather_rows(ctx, rows, config.width, index, b.h, b.h_mid);
  } else if (b.h_mid != b.h) {
    ops.gather_rows(ctx, rows, config.width, act.all_rows, b.h, b.h_mid);
  }
  linear(ctx, rows, config.query_width(), config.width, b.o, params.at(at.out), b.h_mid,
         config.width, true);
  mlp_forward(ctx, params, layer);
}

void Ranker::Impl::head_forward(ops::Context& ctx, const Params& params) {
  ops.rms_norm(ctx, {candidates, config.width, eps, act.blocks.back().h_out,
                     params.at(final_norm_scale), act.final_norm, act.final_rms});
  linear(ctx, candidates, config.width, outputs(), act.final_norm, params.at(head_weight),
         act.logits, outputs());
  scale_actions(act.logits);
}

double Ranker::Impl::loss(ops::Context& ctx, const features::Batch& batch,
                          std::span<double> by_output) {
  for (std::size_t t = 0; t < loss_heads.size(); ++t) {
    loss_heads[t].target = batch.target(static_cast<int>(t)).data();
  }
  ops::LossArgs args;
  args.candidates = candidates;
  args.actions = actions;
  args.bits = loss_bits;
  args.weights = loss_weights;
  args.heads = loss_heads;
  args.logits = act.logits;
  args.labels = batch.actions().data();
  args.d_logits = act.d_logits;
  args.by_output = by_output.empty() ? nullptr : by_output.data();
  const double value = ops.loss(ctx, args);
  // From the logits' gradient to that of the head's output.
  if (training) scale_actions(act.d_logits);
  return value;
}

}  // namespace paceline::model
