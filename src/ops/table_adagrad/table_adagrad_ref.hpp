// Row-wise AdaGrad by its definition; T double is the reference, float the naive fp32.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace paceline::ops {

// Row -> the places that looked it up, both ascending.
inline std::map<std::int32_t, std::vector<std::size_t>> dedup_ref(
    const std::vector<std::int32_t>& lookups) {
  std::map<std::int32_t, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    if (lookups[i] >= 0) rows[lookups[i]].push_back(i);
  }
  return rows;
}

template <typename T>
void table_adagrad_ref(const std::vector<std::int32_t>& lookups, const std::vector<T>& d_rows,
                       std::size_t width, double lr, double eps, double grad_scale,
                       std::vector<T>& table, std::vector<T>& acc) {
  for (const auto& [row, places] : dedup_ref(lookups)) {
    std::vector<T> g(width);
    T square = 0;
    for (std::size_t c = 0; c < width; ++c) {
      for (const std::size_t p : places) g[c] += d_rows[p * width + c];
      g[c] *= static_cast<T>(grad_scale);
      square += g[c] * g[c];
    }
    const auto r = static_cast<std::size_t>(row);
    acc[r] += square / static_cast<T>(width);
    for (std::size_t c = 0; c < width; ++c) {
      table[r * width + c] -= static_cast<T>(lr) * g[c] / (std::sqrt(acc[r]) + static_cast<T>(eps));
    }
  }
}

}  // namespace paceline::ops
