// Ranker attention: candidates see the history and themselves, never each other.
//
// Example b has S = N + C rows: N = keys[b] prefix and history rows, then C candidates. Row i reads
// keys j < N (causal: j <= i for rows i < N), and a candidate row also itself:
//   s_ij = scale * q_i . k_j, optionally capped;  o_i = sum_j softmax_j(s_ij) v_j.
// A row that reads no key (N = 0 and not a candidate) does not exist; a candidate always reads
// itself. Soft cap c: kTanh c * tanh(s / c), kSoftSign s / (1 + |s| / c).
//
// Packed: rows of all examples follow each other, cu_rows[B + 1]. k and v are over all rows, head h
// of row t at k + t * k_stride + h * head_dim. Queries are all rows, or with candidates_only just
// the candidate rows of each example, concatenated (cu_candidates[B + 1]); o and dq, do follow the
// queries. GQA: query head h uses key head h / (query_heads / key_heads). head_dim is a multiple
// of 8. lse [queries, query_heads]: log of the softmax denominator, written forward and read
// backward. Backward overwrites dq, dk, dv on all rows. Outputs overlap no input. Deterministic; a
// row's output and dq are the same bits whatever the other examples and candidates are, and for
// either query scope.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

enum class SoftCap : std::uint8_t { kNone, kTanh, kSoftSign };

struct AttentionShape {
  std::int32_t examples = 0;
  const std::int32_t* cu_rows = nullptr;        // [examples + 1]
  const std::int32_t* cu_candidates = nullptr;  // [examples + 1]; candidates of b are its last rows
  int query_heads = 0;
  int key_heads = 0;
  int head_dim = 0;
  float scale = 0.0F;
  bool causal = false;
  SoftCap cap_kind = SoftCap::kNone;
  float cap = 0.0F;
  bool candidates_only = false;
};

struct AttentionArgs {
  AttentionShape shape;
  const float* q = nullptr;
  std::int64_t q_stride = 0;
  const float* k = nullptr;
  std::int64_t k_stride = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  float* o = nullptr;
  std::int64_t o_stride = 0;
  float* lse = nullptr;  // [queries, query_heads]
};

struct AttentionGradArgs {
  AttentionShape shape;
  const float* q = nullptr;
  std::int64_t q_stride = 0;
  const float* k = nullptr;
  std::int64_t k_stride = 0;
  const float* v = nullptr;
  std::int64_t v_stride = 0;
  const float* o = nullptr;
  std::int64_t o_stride = 0;
  const float* lse = nullptr;
  const float* d_o = nullptr;
  std::int64_t do_stride = 0;
  float* dq = nullptr;
  std::int64_t dq_stride = 0;
  float* dk = nullptr;
  std::int64_t dk_stride = 0;
  float* dv = nullptr;
  std::int64_t dv_stride = 0;
};

void ranker_attention_cpu(Context& ctx, const AttentionArgs& args);
void ranker_attention_grad_cpu(Context& ctx, const AttentionGradArgs& args);

}  // namespace paceline::ops
