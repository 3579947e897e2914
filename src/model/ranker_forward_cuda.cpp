// Blocks and head on the GPU, forward.
#include <cmath>

#include "model/ranker_cuda_impl.hpp"
#include "ops/gelu/gelu_cuda.hpp"
#include "ops/rms_norm/rms_norm_cuda.hpp"
#include "ops/rows/rows_cuda.hpp"

namespace paceline::model {

template <typename T>
void RankerCuda<T>::Impl::product(const device::Stream& stream, int index,
                                  const ops::LinearPointers& pointers) {
  if (tuning > 0) linear->tune(stream, index, pointers, tuning);
  linear->run(stream, index, pointers);
}

template <typename T>
void RankerCuda<T>::Impl::build_tokens(const device::Stream& stream, const WeightsCuda<T>& weights,
                                       const SlotCuda& slot) {
  const auto& limit = sizes.capacity;
  ops::token_order_cuda(
      stream, {schema.prefix_tokens(), static_cast<std::int32_t>(limit.examples),
               static_cast<std::int32_t>(limit.tokens), static_cast<std::int32_t>(limit.history),
               static_cast<std::int32_t>(limit.candidates), slot.tail->counts,
               at<std::int32_t>(slot, batch_layout.cu_tokens),
               at<std::int32_t>(slot, batch_layout.cu_history),
               at<std::int32_t>(slot, batch_layout.cu_candidates),
               at<std::int32_t>(slot, batch_layout.history_len),
               at<std::int32_t>(slot, batch_layout.positions), act.source, act.token_of,
               act.candidate_position});
  for (int kind = 0; kind < static_cast<int>(columns.size()); ++kind) {
    const auto k = static_cast<std::size_t>(kind);
    if (token_weights[k] < 0 || sizes.entries[k] == 0) continue;
    const KindCuda<T>& to = act.kinds[k];
    const int padded = sizes.k_padded[k];
    ops::token_weight_pad_cuda<T>(stream, {config.width, columns[k].width, padded, weight_column[k],
                                           weights.dense + token_weights[k], to.weight});
    ops::token_gather_cuda<T>(stream, {sizes.entries[k], count_of(slot, kind), slot.inputs[k],
                                       static_cast<int>(schema.kinds()[k].features.size()), padded,
                                       weights.table, config.table_width, to.x});
    product(stream, kind_products[k].forward,
            {to.x, to.weight, nullptr, act.kind_rows + first_row(kind) * config.width, nullptr,
             multiplier});
  }
  const BlockCuda<T>& b = act.blocks.front();
  ops::token_assemble_cuda<T>(stream,
                              {limit.tokens, config.width, eps, act.source, act.kind_rows,
                               weights.dense + offsets.front().norm, b.h, b.norm, b.norm_rms});
}

template <typename T>
ops::AttentionCudaArgs<T> RankerCuda<T>::Impl::attention(int layer, const SlotCuda& slot) const {
  const BlockCuda<T>& b = act.blocks[static_cast<std::size_t>(layer)];
  ops::AttentionCudaArgs<T> args;
  auto& shape = args.shape;
  shape.max_examples = limits.examples;
  shape.cu_rows = at<std::int32_t>(slot, batch_layout.cu_tokens);
  shape.cu_candidates = at<std::int32_t>(slot, batch_layout.cu_candidates);
  shape.max_candidates = limits.candidates;
  shape.max_rows = schema.prefix_tokens() + limits.history_len + limits.candidates;
  shape.row_capacity = sizes.capacity.tokens;
  shape.candidate_capacity = sizes.capacity.candidates;
  shape.query_heads = config.query_heads;
  shape.key_heads = config.key_heads;
  shape.head_dim = config.head_dim;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  shape.causal = config.causal;
  shape.cap_kind = config.cap_kind;
  shape.cap = static_cast<float>(config.cap);
  shape.candidates_only = is_last(layer);
  args.q = b.q;
  args.q_stride = config.query_width();
  args.k = b.k;
  args.k_stride = config.key_width();
  args.v = b.v;
  args.v_stride = b.kv_stride;
  args.o = b.o;
  args.o_stride = config.query_width();
  args.lse = b.lse;
  return args;
}

template <typename T>
void RankerCuda<T>::Impl::project_qkv(const device::Stream& stream, const WeightsCuda<T>& weights,
                                      int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const T* w = weights.shadow + offsets[l].qkv;
  if (!is_last(layer)) {
    product(stream, products[l].qkv.forward, {b.norm, w, nullptr, b.q_raw, nullptr});
    return;
  }
  const std::int32_t* rows = act.token_of + first_row(schema.candidate_kind());
  ops::gather_rows_cuda<T>(stream, sizes.capacity.candidates, config.width, rows, b.norm,
                           b.query_in);
  product(stream, products[l].query.forward, {b.query_in, w, nullptr, b.q_raw, nullptr});
  product(
      stream, products[l].qkv.forward,
      {b.norm, w + std::int64_t{config.query_width()} * config.width, nullptr, b.k_raw, nullptr});
}

template <typename T>
void RankerCuda<T>::Impl::mlp_forward(const device::Stream& stream, const WeightsCuda<T>& weights,
                                      int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const std::int64_t rows = rows_of(layer);
  ops::rms_norm_cuda<T>(stream, {rows, config.width, eps, b.h_mid,
                                 weights.dense + offsets[l].mlp_norm, b.mlp_norm, b.mlp_rms});
  if constexpr (kBf16) {
    product(stream, products[l].up.forward,
            {b.mlp_norm, weights.shadow + offsets[l].up, nullptr, b.mlp_act, b.mlp_up});
  } else {
    product(stream, products[l].up.forward,
            {b.mlp_norm, weights.shadow + offsets[l].up, nullptr, b.mlp_up, nullptr});
    ops::gelu_cuda<T>(stream, rows * config.ffn, b.mlp_up, b.mlp_act);
  }
  product(stream, products[l].down.forward,
          {b.mlp_act, weights.shadow + offsets[l].down, b.h_mid, b.h_out, nullptr});
}

template <typename T>
void RankerCuda<T>::Impl::block_forward(const device::Stream& stream, const WeightsCuda<T>& weights,
                                        int layer, const SlotCuda& slot) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const BlockOffsets& o = offsets[l];
  const std::int64_t tokens = sizes.capacity.tokens;
  if (layer > 0) {
    ops::rms_norm_cuda<T>(
        stream, {tokens, config.width, eps, b.h, weights.dense + o.norm, b.norm, b.norm_rms});
  }
  project_qkv(stream, weights, layer);
  ops::norm_rope_cuda<T>(
      stream, {rows_of(layer), config.query_heads, config.head_dim, eps, b.q_raw, b.q_stride,
               weights.dense + o.q_norm, query_positions(layer, slot), rope(), b.q, b.q_rms});
  ops::norm_rope_cuda<T>(
      stream, {tokens, config.key_heads, config.head_dim, eps, b.k_raw, b.kv_stride,
               weights.dense + o.k_norm, at<std::int32_t>(slot, batch_layout.positions), rope(),
               b.k, b.k_rms});
  ops::ranker_attention_cuda<T>(stream, attention(layer, slot));
  const T* residual = b.h;
  if (is_last(layer)) {
    // h_out is free until the block's end.
    ops::gather_rows_cuda<T>(stream, sizes.capacity.candidates, config.width,
                             act.token_of + first_row(schema.candidate_kind()), b.h, b.h_out);
    residual = b.h_out;
  }
  product(stream, products[l].out.forward,
          {b.o, weights.shadow + o.out, residual, b.h_mid, nullptr});
  mlp_forward(stream, weights, layer);
}

template <typename T>
void RankerCuda<T>::Impl::head_forward(const device::Stream& stream,
                                       const WeightsCuda<T>& weights) {
  ops::rms_norm_cuda<T>(stream,
                        {sizes.capacity.candidates, config.width, eps, act.blocks.back().h_out,
                         weights.dense + final_norm_scale, act.final_norm, act.final_rms});
  product(stream, head.forward,
          {act.final_norm, weights.shadow + head_weight, nullptr, act.head, nullptr});
}

template <typename T>
void RankerCuda<T>::forward(const device::Stream& stream, const WeightsCuda<T>& weights, int slot) {
  auto& m = *impl_;
  const SlotCuda& s = m.slots[static_cast<std::size_t>(slot)];
  m.build_tokens(stream, weights, s);
  for (int layer = 0; layer < m.config.layers; ++layer) {
    m.block_forward(stream, weights, layer, s);
  }
  m.head_forward(stream, weights);
}

template <typename T>
void RankerCuda<T>::loss(const device::Stream& stream, int slot) {
  auto& m = *impl_;
  const SlotCuda& s = m.slots[static_cast<std::size_t>(slot)];
  ops::LossCudaArgs<T> args;
  args.capacity = m.sizes.capacity.candidates;
  args.count = m.count_of(s, m.schema.candidate_kind());
  args.heads = {m.actions, m.action_bits, m.action_weights, m.targets, s.heads};
  args.action_scale = m.action_scale;
  args.y = m.act.head;
  args.stride = m.sizes.head_stride;
  args.labels = m.template at<std::uint64_t>(s, m.batch_layout.actions);
  args.d_y = m.act.d_head;
  args.partials = m.act.loss_partials;
  args.loss = m.act.loss;
  ops::loss_cuda<T>(stream, args);
}

template void RankerCuda<float>::Impl::product(const device::Stream&, int,
                                               const ops::LinearPointers&);
template void RankerCuda<device::BFloat16>::Impl::product(const device::Stream&, int,
                                                          const ops::LinearPointers&);
template ops::AttentionCudaArgs<float> RankerCuda<float>::Impl::attention(int,
                                                                          const SlotCuda&) const;
template ops::AttentionCudaArgs<device::BFloat16> RankerCuda<device::BFloat16>::Impl::attention(
    int, const SlotCuda&) const;
template void RankerCuda<float>::forward(const device::Stream&, const WeightsCuda<float>&, int);
template void RankerCuda<float>::loss(const device::Stream&, int);
template void RankerCuda<device::BFloat16>::forward(const device::Stream&,
                                                    const WeightsCuda<device::BFloat16>&, int);
template void RankerCuda<device::BFloat16>::loss(const device::Stream&, int);

}  // namespace paceline::model
