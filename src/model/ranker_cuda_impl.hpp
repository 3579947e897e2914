// Private to the room: the state of the GPU ranker and the steps of its forward and backward.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "model/activations_cuda.hpp"
#include "model/ranker_cuda.hpp"
#include "model/ranker_impl.hpp"
#include "ops/loss/loss_cuda.hpp"
#include "ops/norm_rope/norm_rope_cuda.hpp"
#include "ops/ranker_attention/ranker_attention_cuda.hpp"
#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::model {

// Indices of the prepared products of a linear layer; -1: not needed.
struct LinearLayerCuda {
  int forward = -1, data = -1, weight = -1;
};
struct BlockProductsCuda {
  LinearLayerCuda qkv;    // of the last block: keys and values
  LinearLayerCuda query;  // the last block's
  LinearLayerCuda out, up, down;
};

// What follows the batch's arrays in a slot.
struct SlotTail {
  std::int32_t counts[4];  // examples, tokens, history, candidates
  double factor;
};

// What launches read of one slot: the batch and descriptions that point into it.
struct SlotCuda {
  std::byte* batch = nullptr;
  SlotTail* tail = nullptr;
  std::vector<ops::TokenInputCuda*> inputs;   // by kind
  ops::TableKindCuda* table_kinds = nullptr;  // kinds with lookups
  ops::TableLookupCuda* table_lookups = nullptr;
  ops::RegressionHead* heads = nullptr;
};

template <typename T>
struct RankerCuda<T>::Impl {
  Impl(const ModelConfig& config, const features::Schema& schema,
       const features::BatchLimits& limits, int slots, bool training);

  // ranker_cuda.cpp
  Result<void> allocate(const std::string& device, const ops::LinearAlgorithms& known);
  void place(device::Arena& arena);
  void describe(const device::Stream& stream);
  void describe_slot(const device::Stream& stream, SlotCuda& slot);
  Result<void> prepare_products();
  Result<LinearLayerCuda> layer(std::int64_t rows, std::int64_t in, std::int64_t out,
                                std::int64_t y_stride, bool residual, ops::LinearEpilogue forward,
                                ops::LinearEpilogue data);
  void product(const device::Stream& stream, int index, const ops::LinearPointers& at);
  const std::int32_t* count_of(const SlotCuda& slot, int kind) const;

  // ranker_forward_cuda.cpp
  void build_tokens(const device::Stream& stream, const WeightsCuda<T>& weights,
                    const SlotCuda& slot);
  void block_forward(const device::Stream& stream, const WeightsCuda<T>& weights, int layer,
                     const SlotCuda& slot);
  void project_qkv(const device::Stream& stream, const WeightsCuda<T>& weights, int layer);
  void mlp_forward(const device::Stream& stream, const WeightsCuda<T>& weights, int layer);
  void head_forward(const device::Stream& stream, const WeightsCuda<T>& weights);
  ops::AttentionCudaArgs<T> attention(int layer, const SlotCuda& slot) const;

  // ranker_backward_cuda.cpp
  void head_grad(const device::Stream& stream, const WeightsCuda<T>& weights, float* dense);
  void mlp_grad(const device::Stream& stream, const WeightsCuda<T>& weights, int layer, T* dh,
                float* dense);
  void attention_grad(const device::Stream& stream, const WeightsCuda<T>& weights, int layer,
                      const SlotCuda& slot, const T* dh, float* dense);
  void inner_qkv_grad(const device::Stream& stream, const WeightsCuda<T>& weights, int layer,
                      float* dense);
  void last_qkv_grad(const device::Stream& stream, const WeightsCuda<T>& weights, int layer,
                     float* dense);
  void tokens_grad(const device::Stream& stream, float* dense);
  // dw = dy^T x, dx = dy w.
  void layer_grad(const device::Stream& stream, const LinearLayerCuda& at, const T* x, const T* dy,
                  const T* w, float* dw, T* dx, void* aux = nullptr);

  bool is_last(int layer) const { return layer + 1 == config.layers; }
  std::int64_t rows_of(int layer) const {
    return is_last(layer) ? sizes.capacity.candidates : sizes.capacity.tokens;
  }
  template <typename V>
  V* at(const SlotCuda& slot, const features::BatchLayout::Array& array) const {
    return reinterpret_cast<V*>(slot.batch + array.offset);
  }
  const std::int32_t* query_positions(int layer, const SlotCuda& slot) const {
    return is_last(layer) ? act.candidate_position : at<std::int32_t>(slot, batch_layout.positions);
  }
  // First row of a kind in the buffer of kinds.
  std::int64_t first_row(int kind) const;
  static constexpr bool kBf16 = sizeof(T) == sizeof(device::BFloat16);
  ops::RopeTableCuda rope() const { return {rope_cos, rope_sin}; }

  ModelConfig config;
  const features::Schema& schema;
  features::BatchLimits limits;
  features::BatchLayout batch_layout;
  bool training;
  int actions, targets;
  float eps, multiplier, action_scale;
  ParameterLayout layout;
  std::vector<BlockOffsets> offsets;
  std::vector<std::int64_t> token_weights;  // per kind, -1: kind without features
  std::int64_t final_norm_scale, head_weight;
  SizesCuda sizes;
  std::vector<ops::TokenColumns> columns;  // per kind
  std::int64_t table_places = 0;

  device::Memory memory;
  ActivationsCuda<T> act;
  std::vector<SlotCuda> slots;
  float* rope_cos = nullptr;
  float* rope_sin = nullptr;
  std::int32_t* action_bits = nullptr;
  float* action_weights = nullptr;
  std::vector<std::int32_t*> weight_column, padded_column;  // per kind
  std::byte* workspace = nullptr;
  std::unique_ptr<ops::LinearCuda> linear;
  std::vector<BlockProductsCuda> products;
  LinearLayerCuda head;
  std::vector<LinearLayerCuda> kind_products;
  int tuning = 0;
};

}  // namespace paceline::model
