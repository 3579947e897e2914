// Builds the tokens of one kind: gathers each entry's features into a row of `width` columns and
// projects it:  h[token] = multiplier * (row w^T),  w [model, width].
//
// Columns in the order of the features: kTableRows: for each hash the table row (zeros for -1);
// kOneHot: a one at the value (none outside [0, width)); kNumber: the value; kMask: bit i of the
// mask as 0 or 1. token_index[entries]: which row of h each entry is; rows of other kinds are not
// touched. A row of h is the same bits whatever the other entries. Backward: dw += , and d_rows
// [lookups][table_width] for each table lookup of the kind in the order (entry, feature, hash);
// lookups that are missing get zeros and are skipped by table_adagrad. The gathered rows are
// recomputed in the backward, not kept.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.hpp"

namespace paceline::ops {

enum class TokenColumn : std::uint8_t { kTableRows, kOneHot, kNumber, kMask };

struct TokenInput {
  TokenColumn column = TokenColumn::kNumber;
  int width = 1;                       // kTableRows: hashes; kOneHot: size; kMask: bits; kNumber: 1
  const std::int32_t* ints = nullptr;  // kTableRows [entries][hashes]; kOneHot [entries]
  const float* floats = nullptr;       // kNumber
  const std::uint64_t* masks = nullptr;  // kMask
};

struct TokenBuildArgs {
  std::int64_t entries = 0;
  std::span<const TokenInput> inputs;
  const float* table = nullptr;  // [rows, table_width]
  int table_width = 0;
  int width = 0;  // sum of columns
  int model = 0;
  float multiplier = 1.0F;
  const float* w = nullptr;  // [model, width]
  const std::int32_t* token_index = nullptr;
  float* h = nullptr;  // [tokens, model]
};

struct TokenBuildGradArgs {
  TokenBuildArgs forward;     // h unused
  const float* dh = nullptr;  // [tokens, model]
  float* dw = nullptr;        // accumulated
  float* d_rows = nullptr;    // [entries * table lookups per entry, table_width], overwritten
};

// Table lookups of one entry.
int lookups_per_entry(std::span<const TokenInput> inputs);

void token_build_cpu(Context& ctx, const TokenBuildArgs& args);
void token_build_grad_cpu(Context& ctx, const TokenBuildGradArgs& args);

}  // namespace paceline::ops
