// Private to the room: where the values of one forward and backward live. One allocation, sized
// for the batch limits, so that memory is constant from the first step on.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.hpp"
#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"

namespace paceline::model {

// The largest batch that the limits allow.
struct Capacity {
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t history = 0;
  std::int64_t candidates = 0;
  std::int64_t positions = 0;  // RoPE positions: [0, positions)
  std::int64_t lookups = 0;    // table rows looked up by all token kinds

  Capacity(const features::Schema& schema, const features::BatchLimits& limits);
  // Entries of token kind k.
  std::int64_t entries(const features::Schema& schema, int kind) const;
};

// One block. T tokens of the batch; R rows that go on: all tokens, in the last block the
// candidates. Q query and K key channels, F of the MLP. Without training all inner blocks share
// their buffers, h_mid is h, and mlp_act is mlp_up.
struct BlockBuffers {
  float* h = nullptr;         // [T, width] before the attention norm
  float* norm = nullptr;      // [T, width]
  float* norm_rms = nullptr;  // [T]
  float* query_in = nullptr;  // [R, width] rows of norm; norm itself but for the last block
  float* q_raw = nullptr;     // [R, Q] with stride
  float* k_raw = nullptr;     // [T, K] with stride
  float* v = nullptr;         // [T, K] with k_raw's stride
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  float* q = nullptr;         // [R, Q] normed and rotated
  float* q_rms = nullptr;     // [R]
  float* k = nullptr;         // [T, K] normed and rotated
  float* k_rms = nullptr;     // [T]
  float* o = nullptr;         // [R, Q]
  float* lse = nullptr;       // [R, query_heads]
  float* h_mid = nullptr;     // [R, width] before the MLP norm
  float* mlp_norm = nullptr;  // [R, width]
  float* mlp_rms = nullptr;   // [R]
  float* mlp_up = nullptr;    // [R, F]
  float* mlp_act = nullptr;   // [R, F]
  float* h_out = nullptr;     // [R, width]: h of the next block
};

// Scratch of the backward, used by one block after the other.
struct GradBuffers {
  float* dh = nullptr;             // [T, width]
  float* dh_candidates = nullptr;  // [C, width]
  float* wide = nullptr;           // [T, max(F, Q + 2 K)]: of the MLP, then of raw q, k, v
  float* rows = nullptr;           // [T, max(width, Q)]: of norms and of attention outputs
  float* dq = nullptr;             // [T, Q]
  float* dk = nullptr;             // [T, K]
  float* dq_raw = nullptr;         // [C, Q] of the last block
  float* query_in = nullptr;       // [C, width] of the last block
};

class Activations {
 public:
  Activations(const ModelConfig& config, const features::Schema& schema, const Capacity& capacity,
              bool training);
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  std::size_t bytes() const { return buffer_.size_bytes(); }

  std::vector<BlockBuffers> blocks;
  GradBuffers grad;
  float* final_norm = nullptr;                  // [C, width]
  float* final_rms = nullptr;                   // [C]
  float* logits = nullptr;                      // [C, outputs]
  float* d_logits = nullptr;                    // [C, outputs]; training only
  std::int32_t* all_rows = nullptr;             // [T]: 0, 1, 2, ...
  std::vector<std::int32_t*> token_index;       // per kind [entries]
  std::int32_t* candidate_positions = nullptr;  // [C]
  std::int32_t* lookups = nullptr;              // [lookups]; training only

 private:
  template <typename T>
  T* take(std::int64_t count);
  void place(const ModelConfig& config, const features::Schema& schema, const Capacity& capacity,
             bool training);
  BlockBuffers inner_block(const ModelConfig& config, std::int64_t tokens, float* h, float* h_mid,
                           bool training);
  BlockBuffers last_block(const ModelConfig& config, const Capacity& capacity, float* h,
                          bool training);
  void fill_rows(const ModelConfig& config, std::int64_t rows, bool training, BlockBuffers& b);

  HostBuffer buffer_;
  std::size_t used_ = 0;
};

}  // namespace paceline::model
