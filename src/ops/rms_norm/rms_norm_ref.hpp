// RMSNorm by its definition; T double is the reference, float the naive fp32.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace paceline::ops {

template <typename T>
std::vector<T> inv_rms_ref(std::size_t rows, std::size_t width, T eps, const std::vector<T>& x) {
  std::vector<T> r(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    T sum = 0;
    for (std::size_t j = 0; j < width; ++j) sum += x[i * width + j] * x[i * width + j];
    r[i] = T{1} / std::sqrt(sum / static_cast<T>(width) + eps);
  }
  return r;
}

template <typename T>
std::vector<T> rms_norm_ref(std::size_t rows, std::size_t width, T eps, const std::vector<T>& x,
                            const std::vector<T>& scale) {
  const auto r = inv_rms_ref(rows, width, eps, x);
  std::vector<T> y(rows * width);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * r[i / width] * scale[i % width];
  return y;
}

template <typename T>
struct RmsNormGradRef {
  std::vector<T> dx, dscale;
};

template <typename T>
RmsNormGradRef<T> rms_norm_grad_ref(std::size_t rows, std::size_t width, T eps,
                                    const std::vector<T>& x, const std::vector<T>& scale,
                                    const std::vector<T>& dy) {
  const auto r = inv_rms_ref(rows, width, eps, x);
  RmsNormGradRef<T> out{std::vector<T>(rows * width), std::vector<T>(width)};
  for (std::size_t i = 0; i < rows; ++i) {
    T dot = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const std::size_t at = i * width + j;
      dot += dy[at] * scale[j] * x[at];
      out.dscale[j] += dy[at] * x[at] * r[i];
    }
    for (std::size_t j = 0; j < width; ++j) {
      const std::size_t at = i * width + j;
      out.dx[at] =
          r[i] * dy[at] * scale[j] - x[at] * r[i] * r[i] * r[i] * dot / static_cast<T>(width);
    }
  }
  return out;
}

}  // namespace paceline::ops
