// RMSNorm over a row of heads, then RoPE, by their definitions; T double is the reference, float
// the naive fp32. Rows are dense.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/rms_norm/rms_norm_ref.hpp"

namespace paceline::ops {

// Each head's pairs (i, i + head_dim / 2) turned by sign * position * base^(-2 i / head_dim).
template <typename T>
std::vector<T> rotate_ref(std::size_t heads, std::size_t head_dim, double base, double sign,
                          const std::vector<std::int32_t>& positions, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const std::size_t half = head_dim / 2;
  for (std::size_t r = 0; r < positions.size(); ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            sign * positions[r] *
            std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const auto c = static_cast<T>(std::cos(angle));
        const auto s = static_cast<T>(std::sin(angle));
        const std::size_t a = (r * heads + h) * head_dim + i;
        y[a] = x[a] * c - x[a + half] * s;
        y[a + half] = x[a + half] * c + x[a] * s;
      }
    }
  }
  return y;
}

template <typename T>
std::vector<T> norm_rope_ref(std::size_t heads, std::size_t head_dim, double base, T eps,
                             const std::vector<std::int32_t>& positions, const std::vector<T>& x,
                             const std::vector<T>& scale) {
  return rotate_ref(heads, head_dim, base, 1.0, positions,
                    rms_norm_ref(positions.size(), heads * head_dim, eps, x, scale));
}

template <typename T>
RmsNormGradRef<T> norm_rope_grad_ref(std::size_t heads, std::size_t head_dim, double base, T eps,
                                     const std::vector<std::int32_t>& positions,
                                     const std::vector<T>& x, const std::vector<T>& scale,
                                     const std::vector<T>& dy) {
  return rms_norm_grad_ref(positions.size(), heads * head_dim, eps, x, scale,
                           rotate_ref(heads, head_dim, base, -1.0, positions, dy));
}

}  // namespace paceline::ops
