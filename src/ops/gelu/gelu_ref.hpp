// Tanh GELU by its definition; T double is the reference, float the naive fp32.
#pragma once

#include <cmath>
#include <vector>

namespace paceline::ops {

template <typename T>
T gelu_ref(T x) {
  const T u = std::sqrt(T{2} / static_cast<T>(M_PI)) * (x + static_cast<T>(0.044715) * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

template <typename T>
T gelu_slope_ref(T x) {
  const T root = std::sqrt(T{2} / static_cast<T>(M_PI));
  const T t = std::tanh(root * (x + static_cast<T>(0.044715) * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * static_cast<T>(0.044715) * x * x);
}

}  // namespace paceline::ops
