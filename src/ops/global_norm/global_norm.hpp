// Global L2 norm of a flat gradient: fp64 sums over fixed chunks, added in order.
#pragma once

#include <cstdint>

#include "ops/context.hpp"

namespace paceline::ops {

double global_norm_cpu(Context& ctx, std::int64_t n, const float* g);

}  // namespace paceline::ops
