// Private to the room: the state of a ranker and the steps of its forward and backward.
#pragma once

#include <cstdint>
#include <vector>

#include "model/activations.hpp"
#include "model/ranker.hpp"

namespace paceline::model {

// Offsets of a block's tensors in the flat array.
struct BlockOffsets {
  std::int64_t norm, qkv, q_norm, k_norm, out, mlp_norm, up, down;
};

std::vector<BlockOffsets> block_offsets(const ParameterLayout& layout, int layers);
// Of each kind's weight; -1: a kind without features.
std::vector<std::int64_t> token_weight_offsets(const ParameterLayout& layout,
                                               const features::Schema& schema, int table_width);
// Logits of actions are the head's outputs times this.
double action_scale(int width);
ops::TokenInput input_of(const features::TokenFeature& feature);
ops::RegressionHead head_of(const features::Target& target);  // without its values

struct Ranker::Impl {
  Impl(const ModelConfig& config, const features::Schema& schema,
       const features::BatchLimits& limits, const ops::OpTable& ops, bool training);

  // Weights of one call and the gradients that they get.
  struct Params {
    const float* dense = nullptr;
    const float* table = nullptr;
    float* d_dense = nullptr;
    float* d_table_rows = nullptr;
    const float* at(std::int64_t offset) const { return dense + offset; }
    float* grad(std::int64_t offset) const { return d_dense + offset; }
  };

  void check(const Weights& weights, const features::Batch& batch) const;

  // ranker_tokens.cpp
  void index_tokens(const features::Batch& batch);
  void collect_lookups(const features::Batch& batch);
  ops::TokenBuildArgs token_args(int kind, const Params& params, const features::Batch& batch);
  void build_tokens(ops::Context& ctx, const Params& params, const features::Batch& batch);
  void tokens_grad(ops::Context& ctx, const Params& params, const features::Batch& batch);

  // ranker_forward.cpp
  void block_forward(ops::Context& ctx, const Params& params, int layer,
                     const features::Batch& batch);
  void project_qkv(ops::Context& ctx, const Params& params, int layer);
  void mlp_forward(ops::Context& ctx, const Params& params, int layer);
  void head_forward(ops::Context& ctx, const Params& params);
  double loss(ops::Context& ctx, const features::Batch& batch, std::span<double> by_output);

  // ranker_backward.cpp
  void head_grad(ops::Context& ctx, const Params& params);
  void block_grad(ops::Context& ctx, const Params& params, int layer, const features::Batch& batch);
  void mlp_grad(ops::Context& ctx, const Params& params, int layer, float* dh);
  void attention_grad(ops::Context& ctx, const Params& params, int layer,
                      const features::Batch& batch, const float* dh);
  void inner_qkv_grad(ops::Context& ctx, const Params& params, int layer);
  void last_qkv_grad(ops::Context& ctx, const Params& params, int layer);

  // One linear layer from rows of x to rows of y and its two gradients.
  void linear(ops::Context& ctx, std::int64_t rows, int in, int out, const float* x, const float* w,
              float* y, std::int64_t y_stride, bool accumulate = false) const;
  void linear_grad(ops::Context& ctx, std::int64_t rows, int in, int out, const float* x,
                   const float* dy, std::int64_t dy_stride, const float* w, float* dw,
                   float* dx) const;

  bool is_last(int layer) const { return layer + 1 == config.layers; }
  // Rows that go on through this block.
  std::int64_t rows_of(int layer) const { return is_last(layer) ? candidates : tokens; }
  ops::AttentionShape attention_shape(int layer, const features::Batch& batch) const;
  const std::int32_t* query_positions(int layer, const features::Batch& batch) const;
  int outputs() const { return actions + targets; }
  // Logits are the head's output times this: 2 sqrt(512 / width) for actions, 1 for targets.
  void scale_actions(float* values) const;

  ModelConfig config;
  const features::Schema& schema;
  const ops::OpTable& ops;
  bool training;
  int actions, targets;
  float eps;
  Capacity capacity;
  ParameterLayout layout;
  std::vector<BlockOffsets> offsets;
  std::vector<std::int64_t> token_weights;  // per kind, -1: kind without features
  std::int64_t final_norm_scale, head_weight;
  ops::RopeTable rope;
  Activations act;
  std::vector<std::vector<ops::TokenInput>> inputs;  // per kind; pointers set by each call
  std::vector<std::int64_t> lookups_per_entry;       // per kind
  std::vector<int> loss_bits;
  std::vector<float> loss_weights;
  std::vector<ops::RegressionHead> loss_heads;

  // Of the last forward.
  std::int64_t tokens = 0;
  std::int64_t candidates = 0;
  std::int64_t lookup_count = 0;
};

}  // namespace paceline::model
