// bf16 as the host sees it: the upper half of a float. Kernels read it as __nv_bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline::device {

struct BFloat16 {
  std::uint16_t bits = 0;
};

inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
// Rounds to nearest, ties to even; a NaN stays one.
inline BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
}

}  // namespace paceline::device
