// Ranker attention on the GPU (contract and formulas: ranker_attention.hpp), for T = BFloat16 with
// tensor cores, and T = float, exact but slow. Packed rows; everything that depends on the batch is
// read on the device, so that one captured launch serves every batch within the capacities.
//
// Rows past the last example's, up to the capacity, are written as zeros in every output.
// Deterministic: no atomics on floating-point values. A row's output and dq are the same bits
// whatever the other examples and candidates are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "ops/ranker_attention/ranker_attention.hpp"

namespace paceline::ops {

// As AttentionShape, for batches up to a size. Device pointers.
struct AttentionCudaShape {
  std::int32_t max_examples = 0;          // entries of cu past the batch's repeat its last one
  const std::int32_t* cu_rows = nullptr;  // [max_examples + 1]
  const std::int32_t* cu_candidates = nullptr;  // [max_examples + 1]
  std::int32_t max_rows = 0;                    // of one example, candidates included
  std::int32_t max_candidates = 0;              // of one example
  std::int64_t row_capacity = 0;                // rows of k and v, and of q when all rows query
  std::int64_t candidate_capacity = 0;          // rows of q with candidates_only
  int query_heads = 0;
  int key_heads = 0;
  int head_dim = 0;  // 64 or 128; T = float: any multiple of 8 up to 128
  float scale = 0.0F;
  bool causal = false;
  SoftCap cap_kind = SoftCap::kNone;
  float cap = 0.0F;
  bool candidates_only = false;
};

template <typename T>
struct AttentionCudaArgs {
  AttentionCudaShape shape;
  const T* q = nullptr;  // strides in elements, multiples of 8; pointers 16-byte aligned
  std::int64_t q_stride = 0;
  const T* k = nullptr;
  std::int64_t k_stride = 0;
  const T* v = nullptr;
  std::int64_t v_stride = 0;
  T* o = nullptr;
  std::int64_t o_stride = 0;
  float* lse = nullptr;  // [query rows, query_heads]
};

template <typename T>
struct AttentionGradCudaArgs {
  AttentionCudaArgs<T> forward;  // with the o and lse that the forward wrote
  const T* d_o = nullptr;
  std::int64_t do_stride = 0;
  float* delta = nullptr;  // scratch [query rows, query_heads]: sum of d_o * o
  T* dq = nullptr;
  std::int64_t dq_stride = 0;
  T* dk = nullptr;
  std::int64_t dk_stride = 0;
  T* dv = nullptr;
  std::int64_t dv_stride = 0;
};

template <typename T>
void ranker_attention_cuda(const device::Stream& stream, const AttentionCudaArgs<T>& args);
template <typename T>
void ranker_attention_grad_cuda(const device::Stream& stream, const AttentionGradCudaArgs<T>& args);

}  // namespace paceline::ops
