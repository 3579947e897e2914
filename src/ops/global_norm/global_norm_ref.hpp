// Global L2 norm by its definition, in more digits than the ops have.
#pragma once

#include <cmath>
#include <vector>

namespace paceline::ops {

inline double global_norm_ref(const std::vector<float>& g) {
  long double sum = 0.0L;
  for (const float v : g) sum += static_cast<long double>(v) * v;
  return static_cast<double>(std::sqrt(sum));
}

}  // namespace paceline::ops
