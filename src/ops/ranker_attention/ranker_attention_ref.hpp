// The ranker attention as obvious loops, for tests: double is the reference, float the naive
// computation that error bounds are measured by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/ranker_attention/ranker_attention.hpp"

namespace paceline::ops {

// Dense arrays: q, o, d_o [queries, query_heads, head_dim], k, v [rows, key_heads, head_dim],
// lse [queries, query_heads].
template <typename T>
struct AttentionValues {
  std::vector<T> q, k, v, o, lse;
};
template <typename T>
struct AttentionGrads {
  std::vector<T> dq, dk, dv;
};

// Calls f(query, row, first row of the example, keys of the example) for every query.
template <typename F>
void for_queries_ref(const AttentionShape& s, F&& f) {
  std::int64_t query = 0;
  for (int b = 0; b < s.examples; ++b) {
    const std::int64_t first = s.cu_rows[b];
    const std::int64_t last = s.cu_rows[b + 1];
    const std::int64_t keys = last - first - (s.cu_candidates[b + 1] - s.cu_candidates[b]);
    for (std::int64_t row = s.candidates_only ? first + keys : first; row < last; ++row)
      f(query++, row, first, keys);
  }
}

// Calls f(key row) for every key the row reads.
template <typename F>
void for_keys_ref(const AttentionShape& s, std::int64_t row, std::int64_t first, std::int64_t keys,
                  F&& f) {
  for (std::int64_t j = first; j < first + keys; ++j)
    if (!s.causal || row >= first + keys || j <= row) f(j);
  if (row >= first + keys) f(row);
}

template <typename T>
T dot_ref(const T* x, const T* y, int n) {
  T sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <typename T>
T cap_ref(const AttentionShape& s, T x) {
  const T c = static_cast<T>(s.cap);
  if (s.cap_kind == SoftCap::kTanh) return c * std::tanh(x / c);
  if (s.cap_kind == SoftCap::kSoftSign) return x / (1 + std::abs(x) / c);
  return x;
}

template <typename T>
T cap_slope_ref(const AttentionShape& s, T x) {
  const T c = static_cast<T>(s.cap);
  if (s.cap_kind == SoftCap::kTanh) return 1 - std::tanh(x / c) * std::tanh(x / c);
  if (s.cap_kind == SoftCap::kSoftSign) return 1 / ((1 + std::abs(x) / c) * (1 + std::abs(x) / c));
  return 1;
}

// Fills o and lse from q, k, v.
template <typename T>
void ranker_attention_ref(const AttentionShape& s, AttentionValues<T>& x) {
  const int d = s.head_dim;
  const int group = s.query_heads / s.key_heads;
  x.o.assign(x.q.size(), 0);
  x.lse.assign(x.q.size() / static_cast<std::size_t>(d), 0);
  std::vector<T> logits;
  for_queries_ref(s, [&](std::int64_t query, std::int64_t row, std::int64_t first, std::int64_t n) {
    for (int h = 0; h < s.query_heads; ++h) {
      const auto at = [&](std::int64_t j) { return (j * s.key_heads + h / group) * d; };
      const std::int64_t qh = query * s.query_heads + h;
      const auto logit = [&](std::int64_t j) {
        return cap_ref(s,
                       static_cast<T>(s.scale) * dot_ref(&x.q[static_cast<std::size_t>(qh * d)],
                                                         &x.k[static_cast<std::size_t>(at(j))], d));
      };
      logits.clear();
      for_keys_ref(s, row, first, n, [&](std::int64_t j) { logits.push_back(logit(j)); });
      const T max = *std::max_element(logits.begin(), logits.end());
      T sum = 0;
      T* o = &x.o[static_cast<std::size_t>(qh * d)];
      std::size_t next = 0;
      for_keys_ref(s, row, first, n, [&](std::int64_t j) {
        const T p = std::exp(logits[next++] - max);
        const T* v = &x.v[static_cast<std::size_t>(at(j))];
        sum += p;
        for (int i = 0; i < d; ++i) o[i] += p * v[i];
      });
      for (int i = 0; i < d; ++i) o[i] /= sum;
      x.lse[static_cast<std::size_t>(qh)] = max + std::log(sum);
    }
  });
}

// Gradients of q, k, v from a filled x and the gradient of o.
template <typename T>
AttentionGrads<T> ranker_attention_grad_ref(const AttentionShape& s, const AttentionValues<T>& x,
                                            const std::vector<T>& d_o) {
  const int d = s.head_dim;
  const int group = s.query_heads / s.key_heads;
  AttentionGrads<T> g{std::vector<T>(x.q.size()), std::vector<T>(x.k.size()),
                      std::vector<T>(x.v.size())};
  for_queries_ref(s, [&](std::int64_t query, std::int64_t row, std::int64_t first, std::int64_t n) {
    for (int h = 0; h < s.query_heads; ++h) {
      const auto qh = static_cast<std::size_t>(query * s.query_heads + h);
      const std::size_t qd = qh * static_cast<std::size_t>(d);
      const T delta = dot_ref(&x.o[qd], &d_o[qd], d);
      for_keys_ref(s, row, first, n, [&](std::int64_t j) {
        const auto kd = static_cast<std::size_t>((j * s.key_heads + h / group) * d);
        const T raw = static_cast<T>(s.scale) * dot_ref(&x.q[qd], &x.k[kd], d);
        const T p = std::exp(cap_ref(s, raw) - x.lse[qh]);
        const T ds = p * (dot_ref(&d_o[qd], &x.v[kd], d) - delta) * cap_slope_ref(s, raw) *
                     static_cast<T>(s.scale);
        for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) {
          g.dq[qd + i] += ds * x.k[kd + i];
          g.dk[kd + i] += ds * x.q[qd + i];
          g.dv[kd + i] += p * d_o[qd + i];
        }
      });
    }
  });
  return g;
}

}  // namespace paceline::ops
