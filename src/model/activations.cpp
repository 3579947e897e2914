#include "model/activations.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace paceline::model {
namespace {

std::int64_t lookups_per_entry(const features::TokenKind& kind) {
  std::int64_t n = 0;
  for (const auto& f : kind.features) {
    if (f.kind == features::Kind::kId) n += f.hashes;
  }
  return n;
}

}  // namespace

Capacity::Capacity(const features::Schema& schema, const features::BatchLimits& limits)
    : examples(limits.examples) {
  const std::int64_t prefix = schema.prefix_tokens();
  tokens = examples * (prefix + limits.history_len + limits.candidates);
  if (limits.tokens > 0) tokens = std::min<std::int64_t>(tokens, limits.tokens);
  history = std::min(tokens, examples * limits.history_len);
  candidates = std::min(tokens, examples * limits.candidates);
  positions = prefix + limits.history_len + 1;
  for (int k = 0; k < static_cast<int>(schema.kinds().size()); ++k) {
    lookups += entries(schema, k) * lookups_per_entry(schema.kinds()[static_cast<std::size_t>(k)]);
  }
}

std::int64_t Capacity::entries(const features::Schema& schema, int kind) const {
  return kind < schema.prefix_tokens() ? examples
                                       : (kind == schema.history_kind() ? history : candidates);
}

Activations::Activations(const ModelConfig& config, const features::Schema& schema,
                         const Capacity& capacity, bool training) {
  place(config, schema, capacity, training);  // counts
  buffer_ = HostBuffer(used_);
  used_ = 0;
  place(config, schema, capacity, training);
  std::iota(all_rows, all_rows + capacity.tokens, 0);
}

// The next `count` elements; nothing yet while the bytes are being counted.
template <typename T>
T* Activations::take(std::int64_t count) {
  const std::size_t at = used_;
  used_ += align_up(static_cast<std::size_t>(count) * sizeof(T));
  return buffer_.size_bytes() == 0 ? nullptr : reinterpret_cast<T*>(buffer_.data() + at);
}

void Activations::place(const ModelConfig& config, const features::Schema& schema,
                        const Capacity& capacity, bool training) {
  const std::int64_t T = capacity.tokens;
  const std::int64_t C = capacity.candidates;
  const auto kinds = static_cast<int>(schema.kinds().size());
  const auto outputs = static_cast<std::int64_t>(schema.actions().size() + schema.targets().size());

  all_rows = take<std::int32_t>(T);
  token_index.clear();
  for (int k = 0; k < kinds; ++k) {
    token_index.push_back(take<std::int32_t>(capacity.entries(schema, k)));
  }
  candidate_positions = take<std::int32_t>(C);

  blocks.clear();
  float* h = take<float>(T * config.width);
  for (int layer = 0; layer + 1 < config.layers; ++layer) {
    if (layer > 0 && !training) {
      blocks.push_back(blocks.front());
      continue;
    }
    float* h_mid = training ? take<float>(T * config.width) : h;
    blocks.push_back(inner_block(config, T, h, h_mid, training));
    h = blocks.back().h_out;
  }
  blocks.push_back(last_block(config, capacity, h, training));

  final_norm = take<float>(C * config.width);
  final_rms = take<float>(C);
  logits = take<float>(C * outputs);
  if (!training) return;

  d_logits = take<float>(C * outputs);
  lookups = take<std::int32_t>(capacity.lookups);
  const std::int64_t Q = config.query_width();
  const std::int64_t K = config.key_width();
  grad.dh = take<float>(T * config.width);
  grad.dh_candidates = take<float>(C * config.width);
  grad.wide = take<float>(T * std::max<std::int64_t>(config.ffn, Q + 2 * K));
  grad.rows = take<float>(T * std::max<std::int64_t>(config.width, Q));
  grad.dq = take<float>(T * Q);
  grad.dk = take<float>(T * K);
  grad.dq_raw = take<float>(C * Q);
  grad.query_in = take<float>(C * config.width);
}

void Activations::fill_rows(const ModelConfig& config, std::int64_t rows, bool training,
                            BlockBuffers& b) {
  b.q = take<float>(rows * config.query_width());
  b.q_rms = take<float>(rows);
  b.o = take<float>(rows * config.query_width());
  b.lse = take<float>(rows * config.query_heads);
  b.mlp_norm = take<float>(rows * config.width);
  b.mlp_rms = take<float>(rows);
  b.mlp_up = take<float>(rows * config.ffn);
  b.mlp_act = training ? take<float>(rows * config.ffn) : b.mlp_up;
}

BlockBuffers Activations::inner_block(const ModelConfig& config, std::int64_t tokens, float* h,
                                      float* h_mid, bool training) {
  const std::int64_t Q = config.query_width();
  const std::int64_t K = config.key_width();
  BlockBuffers b;
  b.h = h;
  b.h_mid = h_mid;
  b.norm = take<float>(tokens * config.width);
  b.norm_rms = take<float>(tokens);
  b.query_in = b.norm;
  float* qkv = take<float>(tokens * (Q + 2 * K));
  if (qkv != nullptr) {
    b.q_raw = qkv;
    b.k_raw = qkv + Q;
    b.v = qkv + Q + K;
  }
  b.q_stride = b.kv_stride = Q + 2 * K;
  b.k = take<float>(tokens * K);
  b.k_rms = take<float>(tokens);
  fill_rows(config, tokens, training, b);
  b.h_out = training ? take<float>(tokens * config.width) : h;
  return b;
}

BlockBuffers Activations::last_block(const ModelConfig& config, const Capacity& capacity, float* h,
                                     bool training) {
  const std::int64_t T = capacity.tokens;
  const std::int64_t C = capacity.candidates;
  const std::int64_t K = config.key_width();
  BlockBuffers b;
  b.h = h;
  b.norm = take<float>(T * config.width);
  b.norm_rms = take<float>(T);
  b.query_in = take<float>(C * config.width);
  b.q_raw = take<float>(C * config.query_width());
  b.q_stride = config.query_width();
  float* kv = take<float>(T * 2 * K);
  if (kv != nullptr) {
    b.k_raw = kv;
    b.v = kv + K;
  }
  b.kv_stride = 2 * K;
  b.k = take<float>(T * K);
  b.k_rms = take<float>(T);
  fill_rows(config, C, training, b);
  b.h_mid = take<float>(C * config.width);
  b.h_out = training ? take<float>(C * config.width) : b.h_mid;
  return b;
}

}  // namespace paceline::model
