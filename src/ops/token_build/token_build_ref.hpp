// Token build by its definition; T double is the reference, float the naive fp32.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/linear/linear_ref.hpp"
#include "ops/token_build/token_build.hpp"

namespace paceline::ops {

// The gathered features [entries, width].
template <typename T>
std::vector<T> token_features_ref(const TokenBuildArgs& a, const std::vector<T>& table) {
  std::vector<T> x;
  for (std::int64_t e = 0; e < a.entries; ++e) {
    for (const TokenInput& in : a.inputs) {
      for (int i = 0; i < in.width; ++i) {
        if (in.column == TokenColumn::kTableRows) {
          const std::int64_t row = in.ints[e * in.width + i];
          for (int c = 0; c < a.table_width; ++c) {
            x.push_back(row < 0 ? T{0} : table[static_cast<std::size_t>(row * a.table_width + c)]);
          }
        } else if (in.column == TokenColumn::kOneHot) {
          x.push_back(in.ints[e] == i ? T{1} : T{0});
        } else if (in.column == TokenColumn::kNumber) {
          x.push_back(static_cast<T>(in.floats[e]));
        } else {
          x.push_back((in.masks[e] >> i & 1U) != 0 ? T{1} : T{0});
        }
      }
    }
  }
  return x;
}

// multiplier * (row w^T) of each entry [entries, model], not yet at its token.
template <typename T>
std::vector<T> token_build_ref(const TokenBuildArgs& a, const std::vector<T>& table,
                               const std::vector<T>& w) {
  auto y = linear_ref(static_cast<std::size_t>(a.entries), static_cast<std::size_t>(a.width),
                      static_cast<std::size_t>(a.model), token_features_ref(a, table), w);
  for (T& v : y) v *= static_cast<T>(a.multiplier);
  return y;
}

template <typename T>
struct TokenBuildGradRef {
  std::vector<T> dw, d_rows;
};

// dy [entries, model]: the gradient of each entry's token.
template <typename T>
TokenBuildGradRef<T> token_build_grad_ref(const TokenBuildArgs& a, const std::vector<T>& table,
                                          const std::vector<T>& w, std::vector<T> dy) {
  const auto entries = static_cast<std::size_t>(a.entries);
  const auto width = static_cast<std::size_t>(a.width), model = static_cast<std::size_t>(a.model);
  for (T& v : dy) v *= static_cast<T>(a.multiplier);
  const auto x = token_features_ref(a, table);
  TokenBuildGradRef<T> out{linear_weight_grad_ref(entries, width, model, x, dy), {}};
  const auto dx = linear_data_grad_ref(entries, width, model, dy, w);
  for (std::size_t e = 0; e < entries; ++e) {
    std::size_t column = e * width;
    for (const TokenInput& in : a.inputs) {
      for (int i = 0; i < in.width; ++i) {
        if (in.column != TokenColumn::kTableRows) {
          ++column;
          continue;
        }
        const bool missing =
            in.ints[e * static_cast<std::size_t>(in.width) + static_cast<std::size_t>(i)] < 0;
        for (int c = 0; c < a.table_width; ++c) {
          out.d_rows.push_back(missing ? T{0} : dx[column]);
          ++column;
        }
      }
    }
  }
  return out;
}

}  // namespace paceline::ops
