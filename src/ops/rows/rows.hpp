// Moves rows of a matrix: gather out[i] = in[index[i]], and its transpose for distinct indices.
// in, out dense fp32 of `width` columns. No aliasing.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

void gather_rows_cpu(Context& ctx, std::int64_t n, int width, const std::int32_t* index,
                     const float* in, float* out);
// out[index[i]] += in[i]; indices are distinct. Other rows of out stay.
void scatter_add_rows_cpu(Context& ctx, std::int64_t n, int width, const std::int32_t* index,
                          const float* in, float* out);

}  // namespace paceline::ops
