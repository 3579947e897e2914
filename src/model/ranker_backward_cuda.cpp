// Blocks, head and tokens on the GPU, backward: the forward's steps in reverse order. grad.dh and
// grad.dh_candidates hold the gradient of the residual stream and are updated in place.
#include "model/ranker_cuda_impl.hpp"
#include "ops/gelu/gelu_cuda.hpp"
#include "ops/rms_norm/rms_norm_cuda.hpp"

namespace paceline::model {

template <typename T>
void RankerCuda<T>::Impl::layer_grad(const device::Stream& stream, const LinearLayerCuda& layer,
                                     const T* x, const T* dy, const T* w, float* dw, T* dx,
                                     void* aux) {
  product(stream, layer.weight, {x, dy, nullptr, dw, nullptr});
  product(stream, layer.data, {dy, w, nullptr, dx, aux});
}

template <typename T>
void RankerCuda<T>::Impl::head_grad(const device::Stream& stream, const WeightsCuda<T>& weights,
                                    float* dense) {
  const GradCuda<T>& g = act.grad;
  layer_grad(stream, head, act.final_norm, act.d_head, weights.shadow + head_weight,
             dense + head_weight, g.rows);
  ops::rms_norm_grad_cuda<T>(stream, {sizes.capacity.candidates,
                                      config.width,
                                      act.blocks.back().h_out,
                                      weights.dense + final_norm_scale,
                                      act.final_rms,
                                      g.rows,
                                      nullptr,
                                      {},
                                      g.dh_candidates,
                                      dense + final_norm_scale,
                                      g.partials});
}

template <typename T>
void RankerCuda<T>::Impl::mlp_grad(const device::Stream& stream, const WeightsCuda<T>& weights,
                                   int layer, T* dh, float* dense) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const BlockOffsets& o = offsets[l];
  const GradCuda<T>& g = act.grad;
  const std::int64_t rows = rows_of(layer);
  layer_grad(stream, products[l].down, b.mlp_act, dh, weights.shadow + o.down, dense + o.down,
             g.wide, kBf16 ? b.mlp_up : nullptr);
  if constexpr (!kBf16) {
    ops::gelu_grad_cuda<T>(stream, rows * config.ffn, b.mlp_up, g.wide, g.wide);
  }
  layer_grad(stream, products[l].up, b.mlp_norm, g.wide, weights.shadow + o.up, dense + o.up,
             g.rows);
  ops::rms_norm_grad_cuda<T>(stream, {rows,
                                      config.width,
                                      b.h_mid,
                                      weights.dense + o.mlp_norm,
                                      b.mlp_rms,
                                      g.rows,
                                      dh,
                                      {},
                                      dh,
                                      dense + o.mlp_norm,
                                      g.partials});
}

// From dh to the gradients of raw queries, keys and values, which lie as the raw values do.
template <typename T>
void RankerCuda<T>::Impl::attention_grad(const device::Stream& stream,
                                         const WeightsCuda<T>& weights, int layer,
                                         const SlotCuda& slot, const T* dh, float* dense) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const BlockOffsets& o = offsets[l];
  const GradCuda<T>& g = act.grad;
  const int q = config.query_width();
  const int k = config.key_width();
  layer_grad(stream, products[l].out, b.o, dh, weights.shadow + o.out, dense + o.out, g.rows);

  T* dq_raw = is_last(layer) ? g.dq_raw : g.wide;
  T* dk_raw = is_last(layer) ? g.wide : g.wide + q;
  ops::AttentionGradCudaArgs<T> args;
  args.forward = attention(layer, slot);
  args.d_o = g.rows;
  args.do_stride = q;
  args.delta = g.delta;
  args.dq = g.dq;
  args.dq_stride = q;
  args.dk = g.dk;
  args.dk_stride = k;
  args.dv = dk_raw + k;
  args.dv_stride = b.kv_stride;
  ops::ranker_attention_grad_cuda<T>(stream, args);
  ops::norm_rope_grad_cuda<T>(
      stream, {rows_of(layer), config.query_heads, config.head_dim, b.q_raw, b.q_stride,
               weights.dense + o.q_norm, query_positions(layer, slot), rope(), b.q_rms, g.dq,
               dq_raw, b.q_stride, dense + o.q_norm, g.partials});
  ops::norm_rope_grad_cuda<T>(
      stream, {sizes.capacity.tokens, config.key_heads, config.head_dim, b.k_raw, b.kv_stride,
               weights.dense + o.k_norm, at<std::int32_t>(slot, batch_layout.positions), rope(),
               b.k_rms, g.dk, dk_raw, b.kv_stride, dense + o.k_norm, g.partials});
}

template <typename T>
void RankerCuda<T>::Impl::inner_qkv_grad(const device::Stream& stream,
                                         const WeightsCuda<T>& weights, int layer, float* dense) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const BlockOffsets& o = offsets[l];
  const GradCuda<T>& g = act.grad;
  layer_grad(stream, products[l].qkv, b.norm, g.wide, weights.shadow + o.qkv, dense + o.qkv,
             g.rows);
  ops::rms_norm_grad_cuda<T>(stream, {sizes.capacity.tokens,
                                      config.width,
                                      b.h,
                                      weights.dense + o.norm,
                                      b.norm_rms,
                                      g.rows,
                                      g.dh,
                                      {},
                                      g.dh,
                                      dense + o.norm,
                                      g.partials});
}

// Keys and values have a gradient on all rows, queries and the residual on candidate rows.
template <typename T>
void RankerCuda<T>::Impl::last_qkv_grad(const device::Stream& stream, const WeightsCuda<T>& weights,
                                        int layer, float* dense) {
  const auto l = static_cast<std::size_t>(layer);
  const BlockCuda<T>& b = act.blocks[l];
  const BlockOffsets& o = offsets[l];
  const GradCuda<T>& g = act.grad;
  const std::int64_t kv = o.qkv + std::int64_t{config.query_width()} * config.width;
  layer_grad(stream, products[l].qkv, b.norm, g.wide, weights.shadow + kv, dense + kv, g.rows);
  layer_grad(stream, products[l].query, b.query_in, g.dq_raw, weights.shadow + o.qkv, dense + o.qkv,
             g.query_in);
  const auto first = static_cast<std::int32_t>(first_row(schema.candidate_kind()));
  ops::rms_norm_grad_cuda<T>(stream, {sizes.capacity.tokens,
                                      config.width,
                                      b.h,
                                      weights.dense + o.norm,
                                      b.norm_rms,
                                      g.rows,
                                      nullptr,
                                      {act.source, first, g.query_in, g.dh_candidates},
                                      g.dh,
                                      dense + o.norm,
                                      g.partials});
}

template <typename T>
void RankerCuda<T>::Impl::tokens_grad(const device::Stream& stream, float* dense) {
  const GradCuda<T>& g = act.grad;
  ops::token_disassemble_cuda<T>(stream,
                                 {sizes.kind_rows, config.width, act.token_of, g.dh, g.kind_rows});
  for (int kind = 0; kind < static_cast<int>(columns.size()); ++kind) {
    const auto k = static_cast<std::size_t>(kind);
    if (token_weights[k] < 0) continue;
    const KindCuda<T>& from = act.kinds[k];
    float* dw = dense + token_weights[k];
    if (sizes.entries[k] == 0) {
      device::fill_zero(stream, dw,
                        sizeof(float) * static_cast<std::size_t>(config.width) *
                            static_cast<std::size_t>(columns[k].width));
      continue;
    }
    const T* dy = g.kind_rows + first_row(kind) * config.width;
    product(stream, kind_products[k].weight,
            {from.x, dy, nullptr, from.d_weight, nullptr, multiplier});
    ops::token_weight_unpad_cuda(stream, {config.width, columns[k].width, sizes.k_padded[k],
                                          padded_column[k], from.d_weight, dw});
    if (from.dx == nullptr) continue;
    product(stream, kind_products[k].data,
            {dy, from.weight, nullptr, from.dx, nullptr, multiplier});
  }
}

template <typename T>
void RankerCuda<T>::backward(const device::Stream& stream, const WeightsCuda<T>& weights, int slot,
                             float* dense) {
  auto& m = *impl_;
  PL_CHECK(m.training, "backward() needs a ranker made for training");
  const SlotCuda& s = m.slots[static_cast<std::size_t>(slot)];
  m.head_grad(stream, weights, dense);
  for (int layer = m.config.layers - 1; layer >= 0; --layer) {
    T* dh = m.is_last(layer) ? m.act.grad.dh_candidates : m.act.grad.dh;
    m.mlp_grad(stream, weights, layer, dh, dense);
    m.attention_grad(stream, weights, layer, s, dh, dense);
    if (m.is_last(layer)) {
      m.last_qkv_grad(stream, weights, layer, dense);
    } else {
      m.inner_qkv_grad(stream, weights, layer, dense);
    }
  }
  m.tokens_grad(stream, dense);
}

template void RankerCuda<float>::backward(const device::Stream&, const WeightsCuda<float>&, int,
                                          float*);
template void RankerCuda<device::BFloat16>::backward(const device::Stream&,
                                                     const WeightsCuda<device::BFloat16>&, int,
                                                     float*);

}  // namespace paceline::model
