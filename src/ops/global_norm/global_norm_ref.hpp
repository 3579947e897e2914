// Global L2 norm by its definition.
#pragma once

#include <cmath>
#include <vector>

namespace paceline::ops {

inline double global_norm_ref(const std::vector<float>& g) {
  double sum = 0.0;
  for (const float v : g) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

}  // namespace paceline::ops
