// The GPU's half of token_build (formulas: token_build.hpp) but its matrix products: a kind's
// features gathered into X, where each token comes from, tokens put in order together with the
// first RMSNorm, and the weights as X's columns want them. T is BFloat16 or float.
//
// X [capacity, k_padded] has the columns of w in another place: TokenColumns lays them out so that
// rows of the table start at multiples of 8, with zeros between. With W_padded from
// token_weight_pad_cuda:  kind_rows = multiplier * X W_padded^T,  and h[token] is a row of it.
// Rows of all kinds lie in one buffer, kind by kind, each kind at its capacity:
//   [prefix kind 0: examples | prefix kind 1: examples | ... | history | candidates].
// Everything that depends on the batch is read on the device; what lies past its counts is written
// as zeros (-1 for places), so nothing of an earlier batch is left. Rows do not depend on each
// other, and no sum depends on timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"
#include "ops/token_build/token_build.hpp"

namespace paceline::ops {

// Where X holds the columns of w: features in their order; each kTableRows feature starts at a
// multiple of 8.
struct TokenColumns {
  TokenColumns(std::span<const TokenInput> inputs, int table_width);

  int width = 0;                            // columns of w
  int k_padded = 0;                         // columns of X, a multiple of 8
  std::vector<std::int32_t> first_column;   // of each input, in X
  std::vector<std::int32_t> padded_column;  // [width]: column of X of each column of w
  std::vector<std::int32_t> weight_column;  // [k_padded]: column of w, -1 in pads
};

// One feature of a kind, values by entry as TokenInput has them. Device pointer.
struct TokenInputCuda {
  TokenColumn column = TokenColumn::kNumber;
  std::int32_t width = 1;         // as in TokenInput
  std::int32_t first_column = 0;  // in X
  const void* values = nullptr;   // int32 [entries][hashes], int32, float or uint64 [entries]
};

template <typename T>
struct TokenGatherCudaArgs {
  std::int64_t capacity = 0;               // rows of X; all are written
  const std::int32_t* count = nullptr;     // device: entries of the batch, at most capacity
  const TokenInputCuda* inputs = nullptr;  // device [input_count], first_column ascending
  int input_count = 0;
  int k_padded = 0;              // a multiple of 8
  const float* table = nullptr;  // [rows, table_width]
  int table_width = 0;           // wide loads when a multiple of 8
  T* x = nullptr;
};
template <typename T>
void token_gather_cuda(const device::Stream& stream, const TokenGatherCudaArgs<T>& args);

// Fills `source`, `token_of` and `candidate_position`, and ends the batch's own arrays: cu_* past
// the examples repeat the last value, positions past the tokens are 0.
struct TokenOrderCudaArgs {
  int prefix_tokens = 0;  // kinds before history and candidates
  std::int32_t example_capacity = 0;
  std::int32_t token_capacity = 0;
  std::int32_t history_capacity = 0;
  std::int32_t candidate_capacity = 0;
  const std::int32_t* counts = nullptr;  // device {examples, tokens, history, candidates}
  std::int32_t* cu_tokens = nullptr;     // [example_capacity + 1], likewise the next two
  std::int32_t* cu_history = nullptr;
  std::int32_t* cu_candidates = nullptr;
  const std::int32_t* history_len = nullptr;  // [examples]
  std::int32_t* positions = nullptr;          // [token_capacity]
  std::int32_t* source = nullptr;             // [token_capacity]: row in the buffer of kinds, or -1
  std::int32_t* token_of = nullptr;           // [kind_rows()]: token of the row, or -1
  std::int32_t* candidate_position = nullptr;  // [candidate_capacity]; 0 past the batch's

  constexpr std::int64_t kind_rows() const {
    return std::int64_t{prefix_tokens} * example_capacity + history_capacity + candidate_capacity;
  }
};
void token_order_cuda(const device::Stream& stream, const TokenOrderCudaArgs& args);

// h[t] = kind_rows[source[t]], zeros for -1;  norm[t] = h[t] * inv_rms[t] * scale (rms_norm.hpp,
// in fp32 from h as stored). width is a multiple of 8, at most 8192.
template <typename T>
struct TokenAssembleCudaArgs {
  std::int64_t rows = 0;  // token capacity
  int width = 0;
  float eps = 1e-5F;
  const std::int32_t* source = nullptr;  // [rows]
  const T* kind_rows = nullptr;          // [.., width]; rows of a kind without features are zeros
  const float* scale = nullptr;          // [width]
  T* h = nullptr;                        // [rows, width]
  T* norm = nullptr;                     // [rows, width]
  float* inv_rms = nullptr;              // [rows]
};
template <typename T>
void token_assemble_cuda(const device::Stream& stream, const TokenAssembleCudaArgs<T>& args);

// d_kind_rows[row] = dh[token_of[row]], zeros for -1.
template <typename T>
struct TokenDisassembleCudaArgs {
  std::int64_t rows = 0;  // TokenOrderCudaArgs::kind_rows()
  int width = 0;          // a multiple of 8
  const std::int32_t* token_of = nullptr;
  const T* dh = nullptr;
  T* d_kind_rows = nullptr;
};
template <typename T>
void token_disassemble_cuda(const device::Stream& stream, const TokenDisassembleCudaArgs<T>& args);

// padded [model, k_padded] = w [model, width] by TokenColumns::weight_column, zeros in pads.
template <typename T>
struct TokenWeightPadCudaArgs {
  int model = 0, width = 0, k_padded = 0;
  const std::int32_t* weight_column = nullptr;  // device
  const float* w = nullptr;
  T* padded = nullptr;
};
template <typename T>
void token_weight_pad_cuda(const device::Stream& stream, const TokenWeightPadCudaArgs<T>& args);

// The way back for gradients: dw [model, width] = d_padded [model, k_padded], overwritten.
struct TokenWeightUnpadCudaArgs {
  int model = 0, width = 0, k_padded = 0;
  const std::int32_t* padded_column = nullptr;  // device: TokenColumns::padded_column
  const float* d_padded = nullptr;
  float* dw = nullptr;
};
void token_weight_unpad_cuda(const device::Stream& stream, const TokenWeightUnpadCudaArgs& args);

}  // namespace paceline::ops
