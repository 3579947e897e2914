#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::ops {
namespace {

constexpr std::int32_t kAlign = 8;  // columns

std::int32_t aligned(std::int32_t column) { return (column + kAlign - 1) / kAlign * kAlign; }

}  // namespace

TokenColumns::TokenColumns(std::span<const TokenInput> inputs, int table_width) {
  for (const TokenInput& input : inputs) {
    const bool table = input.column == TokenColumn::kTableRows;
    const int columns = table ? input.width * table_width : input.width;
    if (table) weight_column.resize(static_cast<std::size_t>(aligned(k_padded)), -1);
    first_column.push_back(static_cast<std::int32_t>(weight_column.size()));
    for (int i = 0; i < columns; ++i) {
      padded_column.push_back(static_cast<std::int32_t>(weight_column.size()));
      weight_column.push_back(width++);
    }
    k_padded = static_cast<int>(weight_column.size());
  }
  k_padded = aligned(k_padded);
  weight_column.resize(static_cast<std::size_t>(k_padded), -1);
}

}  // namespace paceline::ops
