// Tests only: a batch for the GPU attention on the host and what the GPU makes of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "device/bfloat16.hpp"
#include "device/testing/gpu_test.hpp"
#include "ops/ranker_attention/ranker_attention_cuda.hpp"
#include "ops/testing/gpu_values.hpp"
#include "ops/testing/numeric.hpp"

namespace paceline::ops::testing {

using AttentionLengths = std::vector<std::pair<int, int>>;  // keys, candidates of each example

struct AttentionCase {
  std::string name;
  AttentionLengths lengths;
  int query_heads = 2;
  int key_heads = 1;
  int head_dim = 64;
  bool causal = false;
  SoftCap cap_kind = SoftCap::kNone;
  bool candidates_only = false;
  float scale = 0.125F;
  float cap = 2.0F;
};
inline void PrintTo(const AttentionCase& c, std::ostream* os) { *os << c.name; }

// Dense values of a batch; those of T, held as float.
template <typename T>
class AttentionProblem {
 public:
  // other: another set of values than 0's.
  explicit AttentionProblem(const AttentionCase& c, std::uint64_t other = 0) : c_(c) {
    cu_rows_ = {0};
    cu_candidates_ = {0};
    for (const auto& [keys, candidates] : c.lengths) {
      cu_rows_.push_back(cu_rows_.back() + keys + candidates);
      cu_candidates_.push_back(cu_candidates_.back() + candidates);
      longest_ = std::max(longest_, keys + candidates);
      most_candidates_ = std::max(most_candidates_, candidates);
    }
    q = values(queries() * q_width(), 4 * other);
    k = values(rows() * k_width(), 4 * other + 1);
    v = values(rows() * k_width(), 4 * other + 2);
    d_o = values(queries() * q_width(), 4 * other + 3);
  }

  std::vector<float> q, k, v, d_o;

  const AttentionCase& of() const { return c_; }
  std::int64_t rows() const { return cu_rows_.back(); }
  std::int64_t queries() const { return c_.candidates_only ? cu_candidates_.back() : rows(); }
  std::int64_t q_width() const { return std::int64_t{c_.query_heads} * c_.head_dim; }
  std::int64_t k_width() const { return std::int64_t{c_.key_heads} * c_.head_dim; }
  AttentionShape shape() const {
    return {static_cast<std::int32_t>(c_.lengths.size()),
            cu_rows_.data(),
            cu_candidates_.data(),
            c_.query_heads,
            c_.key_heads,
            c_.head_dim,
            c_.scale,
            c_.causal,
            c_.cap_kind,
            c_.cap,
            c_.candidates_only};
  }

  struct Output {
    std::vector<float> o, lse, dq, dk, dv;  // dense
  };
  // Forward and backward with capacities above the batch's. Inputs past the last row are NaN. Fails
  // the test where a gap between rows was written or a row past the last is not zero.
  Output run() const;

 private:
  static constexpr std::int64_t kGap = 8;
  static constexpr std::int64_t kMoreRows = 37;
  static constexpr std::int32_t kMoreExamples = 3;
  static constexpr float kUntouched = 12288.0F;

  static std::vector<float> values(std::int64_t n, std::uint64_t id) {
    std::vector<float> x = normal_values(n, id);
    for (float& y : x) y = as_float(as<T>(y));
    return x;
  }
  static std::vector<T> filled(std::int64_t count, std::int64_t stride, float value) {
    return std::vector<T>(static_cast<std::size_t>(count * stride), as<T>(value));
  }
  static void scatter(const std::vector<float>& from, std::int64_t width, std::int64_t first,
                      std::int64_t stride, std::vector<T>& to) {
    for (std::int64_t i = 0; i < std::ssize(from); ++i)
      to[static_cast<std::size_t>(first + i / width * stride + i % width)] =
          as<T>(from[static_cast<std::size_t>(i)]);
  }
  // Takes the columns of the first `count` rows out; the rest of them is to be zero.
  template <typename U>
  static std::vector<float> gather(std::vector<U>& from, std::int64_t width, std::int64_t first,
                                   std::int64_t stride, std::int64_t count) {
    std::vector<float> x;
    for (std::int64_t row = 0; row < std::ssize(from) / stride; ++row) {
      for (std::int64_t c = 0; c < width; ++c) {
        U& at = from[static_cast<std::size_t>(row * stride + first + c)];
        const float value = as_float(std::exchange(at, as<U>(kUntouched)));
        if (row < count) {
          x.push_back(value);
        } else if (value != 0.0F) {
          ADD_FAILURE() << "row " << row << " past the last of " << count << " is " << value;
          return x;
        }
      }
    }
    return x;
  }
  static void expect_untouched(const std::vector<T>& rest) {
    for (const T x : rest)
      if (as_float(x) != kUntouched) return static_cast<void>(ADD_FAILURE() << "a gap was written");
  }
  std::vector<std::int32_t> padded(std::vector<std::int32_t> cu) const {
    cu.resize(cu.size() + kMoreExamples, cu.back());
    return cu;
  }
  AttentionCudaShape gpu_shape(const std::int32_t* cu_rows,
                               const std::int32_t* cu_candidates) const {
    return {static_cast<std::int32_t>(c_.lengths.size()) + kMoreExamples,
            cu_rows,
            cu_candidates,
            longest_ + 70,
            most_candidates_ + 130,
            rows() + kMoreRows,
            cu_candidates_.back() + kMoreRows,
            c_.query_heads,
            c_.key_heads,
            c_.head_dim,
            c_.scale,
            c_.causal,
            c_.cap_kind,
            c_.cap,
            c_.candidates_only};
  }

  AttentionCase c_;
  std::vector<std::int32_t> cu_rows_;
  std::vector<std::int32_t> cu_candidates_;
  int longest_ = 0;
  int most_candidates_ = 0;
};

template <typename T>
typename AttentionProblem<T>::Output AttentionProblem<T>::run() const {
  using device::testing::DeviceArray;
  const std::int64_t qw = q_width();
  const std::int64_t kw = k_width();
  const std::int64_t row = qw + 2 * kw + kGap;
  const bool fused = !c_.candidates_only;  // q, k, v side by side, or q on its own
  const std::int64_t qs = fused ? row : qw + kGap;
  const std::int64_t all_rows = rows() + kMoreRows;
  const std::int64_t all_queries = queries() + kMoreRows;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  auto in = filled(all_rows, row, kNan);
  auto q_own = filled(all_queries, qs, kNan);
  auto d_o_in = filled(all_queries, qw + kGap, kNan);
  scatter(q, qw, 0, qs, fused ? in : q_own);
  scatter(k, kw, qw, row, in);
  scatter(v, kw, qw + kw, row, in);
  scatter(d_o, qw, 0, qw + kGap, d_o_in);
  const DeviceArray<std::int32_t> cu_rows(padded(cu_rows_));
  const DeviceArray<std::int32_t> cu_candidates(padded(cu_candidates_));
  const DeviceArray<T> d_in(in), d_q_own(q_own), d_d_o(d_o_in);
  const DeviceArray<T> d_out(filled(all_rows, row, kUntouched));
  const DeviceArray<T> d_dq_own(filled(all_queries, qs, kUntouched));
  const DeviceArray<T> d_o_out(filled(all_queries, qw + kGap, kUntouched));
  const auto statistics = static_cast<std::size_t>(all_queries * c_.query_heads);
  const DeviceArray<float> d_lse(std::vector<float>(statistics, kUntouched));
  const DeviceArray<float> d_delta(std::vector<float>(statistics, kNan));

  const T* k_at = d_in.data() + qw;
  AttentionCudaArgs<T> a{gpu_shape(cu_rows.data(), cu_candidates.data()),
                         (fused ? d_in : d_q_own).data(),
                         qs,
                         k_at,
                         row,
                         k_at + kw,
                         row,
                         d_o_out.data(),
                         qw + kGap,
                         d_lse.data()};
  T* dk_at = d_out.data() + qw;
  const AttentionGradCudaArgs<T> g{
      a,  d_d_o.data(), qw + kGap, d_delta.data(), (fused ? d_out : d_dq_own).data(),
      qs, dk_at,        row,       dk_at + kw,     row};
  const device::Stream stream("test");
  ranker_attention_cuda(stream, a);
  ranker_attention_grad_cuda(stream, g);
  stream.synchronize();

  auto o_back = d_o_out.read();
  auto lse_back = d_lse.read();
  auto out_back = d_out.read();
  auto dq_back = d_dq_own.read();
  d_delta.read();
  Output y;
  y.o = gather(o_back, qw, 0, qw + kGap, queries());
  y.lse = gather(lse_back, c_.query_heads, 0, c_.query_heads, queries());
  y.dq = gather(fused ? out_back : dq_back, qw, 0, qs, queries());
  y.dk = gather(out_back, kw, qw, row, rows());
  y.dv = gather(out_back, kw, qw + kw, row, rows());
  expect_untouched(o_back);
  expect_untouched(out_back);
  expect_untouched(dq_back);
  return y;
}

}  // namespace paceline::ops::testing
