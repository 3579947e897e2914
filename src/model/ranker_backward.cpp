// Blocks and head, backward: the forward's steps in reverse order. grad.dh and grad.dh_candidates
// hold the gradient of the residual stream and are updated in place from block to block.
#include "model/ranker_impl.hpp"

namespace paceline::model {

// dw = dy^T x, dx = dy w.
void Ranker::Impl::linear_grad(ops::Context& ctx, std::int64_t rows, int in, int out,
                               const float* x, const float* dy, std::int64_t dy_stride,
                               const float* w, float* dw, float* dx) const {
  ops::LinearWeightGradArgs weight;
  weight.rows = rows;
  weight.in = in;
  weight.out = out;
  weight.x = x;
  weight.x_stride = in;
  weight.dy = dy;
  weight.dy_stride = dy_stride;
  weight.dw = dw;
  ops.linear_weight_grad(ctx, weight);
  ops::LinearDataGradArgs data;
  data.rows = rows;
  data.in = in;
  data.out = out;
  data.dy = dy;
  data.dy_stride = dy_stride;
  data.w = w;
  data.dx = dx;
  data.dx_stride = in;
  ops.linear_data_grad(ctx, data);
}

void Ranker::Impl::head_grad(ops::Context& ctx, const Params& params) {
  const GradBuffers& g = act.grad;
  linear_grad(ctx, candidates, config.width, outputs(), act.final_norm, act.d_logits, outputs(),
              params.at(head_weight), params.grad(head_weight), g.rows);
  ops.rms_norm_grad(ctx,
                    {candidates, config.width, act.blocks.back().h_out, params.at(final_norm_scale),
                     act.final_rms, g.rows, g.dh_candidates, false, params.grad(final_norm_scale)});
}

void Ranker::Impl::mlp_grad(ops::Context& ctx, const Params& params, int layer, float* dh) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const BlockOffsets& at = offsets[l];
  const GradBuffers& g = act.grad;
  const std::int64_t rows = rows_of(layer);
  linear_grad(ctx, rows, config.ffn, config.width, b.mlp_act, dh, config.width, params.at(at.down),
              params.grad(at.down), g.wide);
  ops.gelu_grad(ctx, rows * config.ffn, b.mlp_up, g.wide, g.wide);
  linear_grad(ctx, rows, config.width, config.ffn, b.mlp_norm, g.wide, config.ffn, params.at(at.up),
              params.grad(at.up), g.rows);
  ops.rms_norm_grad(ctx, {rows, config.width, b.h_mid, params.at(at.mlp_norm), b.mlp_rms, g.rows,
                          dh, true, params.grad(at.mlp_norm)});
}

// From dh to the gradients of raw queries, keys and values.
void Ranker::Impl::attention_grad(ops::Context& ctx, const Params& params, int layer,
                                  const features::Batch& batch, const float* dh) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const BlockOffsets& at = offsets[l];
  const GradBuffers& g = act.grad;
  const std::int64_t rows = rows_of(layer);
  const int q = config.query_width();
  const int k = config.key_width();
  linear_grad(ctx, rows, q, config.width, b.o, dh, config.width, params.at(at.out),
              params.grad(at.out), g.rows);

  // Raw gradients lie as the raw values do: q, k, v in a row, in the last block k, v.
  float* dq_raw = is_last(layer) ? g.dq_raw : g.wide;
  float* dk_raw = is_last(layer) ? g.wide : g.wide + q;
  ops::AttentionGradArgs args;
  args.shape = attention_shape(layer, batch);
  args.q = b.q;
  args.q_stride = q;
  args.k = b.k;
  args.k_stride = k;
  args.v = b.v;
  args.v_stride = b.kv_stride;
  args.o = b.o;
  args.o_stride = q;
  args.lse = b.lse;
  args.d_o = g.rows;
  args.do_stride = q;
  args.dq = g.dq;
  args.dq_stride = q;
  args.dk = g.dk;
  args.dk_stride = k;
  args.dv = dk_raw + k;
  args.dv_stride = b.kv_stride;
  ops.ranker_attention_grad(ctx, args);
  ops.norm_rope_grad(ctx, {rows, config.query_heads, config.head_dim, b.q_raw, b.q_stride,
                           params.at(at.q_norm), query_positions(layer, batch), &rope, b.q_rms,
                           g.dq, dq_raw, b.q_stride, params.grad(at.q_norm)});
  ops.norm_rope_grad(ctx, {tokens, config.key_heads, config.head_dim, b.k_raw, b.kv_stride,
                           params.at(at.k_norm), batch.positions().data(), &rope, b.k_rms, g.dk,
                           dk_raw, b.kv_stride, params.grad(at.k_norm)});
}

void Ranker::Impl::inner_qkv_grad(ops::Context& ctx, const Params& params, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const BlockOffsets& at = offsets[l];
  const GradBuffers& g = act.grad;
  linear_grad(ctx, tokens, config.width, config.query_width() + 2 * config.key_width(), b.norm,
              g.wide, b.q_stride, params.at(at.qkv), params.grad(at.qkv), g.rows);
  ops.rms_norm_grad(ctx, {tokens, config.width, b.h, params.at(at.norm), b.norm_rms, g.rows, g.dh,
                          true, params.grad(at.norm)});
}

// Keys and values have a gradient on all rows, queries and the residual on candidate rows.
void Ranker::Impl::last_qkv_grad(ops::Context& ctx, const Params& params, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockBuffers& b = act.blocks[l];
  const BlockOffsets& at = offsets[l];
  const GradBuffers& g = act.grad;
  const int q = config.query_width();
  const std::int64_t kv = at.qkv + std::int64_t{q} * config.width;
  const std::int32_t* rows = act.token_index[static_cast<std::size_t>(schema.candidate_kind())];
  linear_grad(ctx, tokens, config.width, 2 * config.key_width(), b.norm, g.wide, b.kv_stride,
              params.at(kv), params.grad(kv), g.rows);
  linear_grad(ctx, candidates, config.width, q, b.query_in, g.dq_raw, q, params.at(at.qkv),
              params.grad(at.qkv), g.query_in);
  ops.scatter_add_rows(ctx, candidates, config.width, rows, g.query_in, g.rows);
  ops.rms_norm_grad(ctx, {tokens, config.width, b.h, params.at(at.norm), b.norm_rms, g.rows, g.dh,
                          false, params.grad(at.norm)});
  ops.scatter_add_rows(ctx, candidates, config.width, rows, g.dh_candidates, g.dh);
}

void Ranker::Impl::block_grad(ops::Context& ctx, const Params& params, int layer,
                              const features::Batch& batch) {
  float* dh = is_last(layer) ? act.grad.dh_candidates : act.grad.dh;
  mlp_grad(ctx, params, layer, dh);
  attention_grad(ctx, params, layer, batch, dh);
  if (is_last(layer)) {
    last_qkv_grad(ctx, params, layer);
  } else {
    inner_qkv_grad(ctx, params, layer);
  }
}

}  // namespace paceline::model
