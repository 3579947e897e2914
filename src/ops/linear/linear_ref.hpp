// The linear layer by its definition; T double is the reference, float the naive fp32.
#pragma once

#include <cstddef>
#include <vector>

namespace paceline::ops {

// y [rows, out] = x w^T.
template <typename T>
std::vector<T> linear_ref(std::size_t rows, std::size_t in, std::size_t out,
                          const std::vector<T>& x, const std::vector<T>& w) {
  std::vector<T> y(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
    }
  }
  return y;
}

// dx [rows, in] = dy w.
template <typename T>
std::vector<T> linear_data_grad_ref(std::size_t rows, std::size_t in, std::size_t out,
                                    const std::vector<T>& dy, const std::vector<T>& w) {
  std::vector<T> dx(rows * in);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) dx[r * in + i] += dy[r * out + o] * w[o * in + i];
    }
  }
  return dx;
}

// dw [out, in] = dy^T x.
template <typename T>
std::vector<T> linear_weight_grad_ref(std::size_t rows, std::size_t in, std::size_t out,
                                      const std::vector<T>& x, const std::vector<T>& dy) {
  std::vector<T> dw(out * in);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) dw[o * in + i] += dy[r * out + o] * x[r * in + i];
    }
  }
  return dw;
}

}  // namespace paceline::ops
