// Gathers rows on the GPU: out[i] = in[index[i]], zeros for -1. T = BFloat16 or float; width a
// multiple of 8, pointers 32-byte aligned, no aliasing.
#pragma once

#include <cstdint>

#include "device/bfloat16.hpp"
#include "device/stream.hpp"

namespace paceline::ops {

template <typename T>
void gather_rows_cuda(const device::Stream& stream, std::int64_t n, int width,
                      const std::int32_t* index, const T* in, T* out);

}  // namespace paceline::ops
