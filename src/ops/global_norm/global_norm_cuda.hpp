// Global L2 norm of a flat gradient on the GPU: fp64 sums of an order that n alone fixes.
#pragma once

#include <cstdint>

#include "device/stream.hpp"

namespace paceline::ops {

inline constexpr int kGlobalNormPartials = 1024;

// g [n], 16-byte aligned; partials: scratch [kGlobalNormPartials]; norm [1]. Device pointers.
void global_norm_cuda(const device::Stream& stream, std::int64_t n, const float* g,
                      double* partials, double* norm);

}  // namespace paceline::ops
