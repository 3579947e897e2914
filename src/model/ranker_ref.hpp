// Tests only: the ranker as obvious loops over one example at a time, every row through every
// layer, with gradients by reverse-mode differentiation of the scalar operations themselves.
//
// ref::Model<T> works in T: double (the reference), float (a naive fp32 computation, for error
// bounds), ref::Var<double> or ref::Var<float> (the same with gradients).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "features/batch.hpp"
#include "features/schema.hpp"
#include "model/model_config.hpp"
#include "model/parameters.hpp"

namespace paceline::model::ref {

// Operations in the order they happened, with the partial derivative of each operand.
template <typename F>
struct Tape {
  struct Node {
    std::int32_t a = -1, b = -1;
    F da = 0, db = 0;
  };
  std::vector<Node> nodes;

  static Tape& current() {
    static Tape tape;
    return tape;
  }
  std::int32_t add(std::int32_t a, F da, std::int32_t b, F db) {
    nodes.push_back({a, b, da, db});
    return static_cast<std::int32_t>(nodes.size()) - 1;
  }
  // d root / d node for every node.
  std::vector<F> gradient(std::int32_t root) const {
    std::vector<F> g(nodes.size(), F{0});
    if (root < 0) return g;
    g[static_cast<std::size_t>(root)] = 1;
    for (std::int32_t i = root; i >= 0; --i) {
      const Node& n = nodes[static_cast<std::size_t>(i)];
      const F up = g[static_cast<std::size_t>(i)];
      if (n.a >= 0) g[static_cast<std::size_t>(n.a)] += up * n.da;
      if (n.b >= 0) g[static_cast<std::size_t>(n.b)] += up * n.db;
    }
    return g;
  }
};

template <typename F>
struct Var {
  F value = 0;
  std::int32_t node = -1;  // -1: a constant

  Var() = default;
  Var(F v) : value(v) {}  // NOLINT(google-explicit-constructor)
  Var(F v, std::int32_t a, F da, std::int32_t b = -1, F db = 0)
      : value(v), node(Tape<F>::current().add(a, da, b, db)) {}
  static Var leaf(F v) { return Var(v, -1, F{0}); }

  friend Var operator+(Var x, Var y) { return {x.value + y.value, x.node, 1, y.node, 1}; }
  friend Var operator-(Var x, Var y) { return {x.value - y.value, x.node, 1, y.node, -1}; }
  friend Var operator*(Var x, Var y) {
    return {x.value * y.value, x.node, y.value, y.node, x.value};
  }
  friend Var operator/(Var x, Var y) {
    const F r = x.value / y.value;
    return {r, x.node, 1 / y.value, y.node, -r / y.value};
  }
  friend Var operator-(Var x) { return {-x.value, x.node, -1}; }
  friend Var sqrt(Var x) {
    const F r = std::sqrt(x.value);
    return {r, x.node, F{0.5} / r};
  }
  friend Var exp(Var x) {
    const F r = std::exp(x.value);
    return {r, x.node, r};
  }
  friend Var log(Var x) { return {std::log(x.value), x.node, 1 / x.value}; }
  friend Var tanh(Var x) {
    const F r = std::tanh(x.value);
    return {r, x.node, 1 - r * r};
  }
  friend Var abs(Var x) {
    return {std::abs(x.value), x.node, x.value > 0 ? F{1} : (x.value < 0 ? F{-1} : F{0})};
  }
};

inline double value_of(double x) { return x; }
inline double value_of(float x) { return x; }
template <typename F>
double value_of(Var<F> x) {
  return x.value;
}

template <typename T>
class Model {
 public:
  Model(const ModelConfig& config, const features::Schema& schema, const ParameterLayout& layout)
      : config_(config), schema_(schema), layout_(layout) {}

  std::vector<T> dense;  // ParameterLayout::size()
  std::vector<T> rows;   // [lookups, table_width]: one row per lookup, zeros where missing

  // Table rows of the batch in the order (kind, entry, feature, hash).
  std::vector<std::int32_t> lookups(const features::Batch& batch) const {
    std::vector<std::int32_t> out;
    for (int k = 0; k < kinds(); ++k) {
      for (int e = 0; e < batch.entries(k); ++e) {
        for (int f = 0; f < features_of(k); ++f) {
          const auto& feature = feature_at(k, f);
          if (feature.kind != features::Kind::kId) continue;
          for (int j = 0; j < feature.hashes; ++j) {
            out.push_back(batch.feature_int(k, f)[at(e * feature.hashes + j)]);
          }
        }
      }
    }
    return out;
  }

  // [candidate_tokens, outputs]
  std::vector<T> logits(const features::Batch& batch) const {
    std::vector<T> out;
    for (int b = 0; b < batch.examples(); ++b) example(batch, b, out);
    return out;
  }

  T loss(const features::Batch& batch) const {
    const auto z = logits(batch);
    const int actions = static_cast<int>(schema_.actions().size());
    const int outputs = actions + static_cast<int>(schema_.targets().size());
    T sum(0);
    for (int c = 0; c < batch.candidate_tokens(); ++c) {
      for (int a = 0; a < actions; ++a) {
        const auto& action = schema_.actions()[at(a)];
        if (!action.train) continue;
        const bool y = (batch.actions()[at(c)] >> action.bit & 1U) != 0;
        const T zy = y ? -z[at(c * outputs + a)] : z[at(c * outputs + a)];
        sum = sum + constant(action.weight) * softplus(zy);
      }
      for (int t = actions; t < outputs; ++t) {
        const auto& target = schema_.targets()[at(t - actions)];
        const double raw = batch.target(t - actions)[at(c)];
        sum = sum + constant(target.weight) * regression(target, std::clamp(raw, 0.0, target.cap),
                                                         z[at(c * outputs + t)]);
      }
    }
    const int n = batch.candidate_tokens();
    return n == 0 ? T(0) : sum / constant(n);
  }

 private:
  using Matrix = std::vector<std::vector<T>>;

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  static T constant(double v) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(v);
    } else {
      return T(static_cast<decltype(T{}.value)>(v));
    }
  }
  int kinds() const { return static_cast<int>(schema_.kinds().size()); }
  int features_of(int k) const { return static_cast<int>(schema_.kinds()[at(k)].features.size()); }
  const features::TokenFeature& feature_at(int k, int f) const {
    return schema_.kinds()[at(k)].features[at(f)];
  }

  static T softplus(T z) {
    using std::exp;
    using std::log;
    return value_of(z) > 0 ? z + log(constant(1) + exp(-z)) : log(constant(1) + exp(z));
  }
  static T regression(const features::Target& target, double t, T z) {
    using std::abs;
    using std::exp;
    using std::sqrt;
    using std::tanh;
    const T cap = constant(target.cap);
    if (target.loss == features::TargetLoss::kSigmoidMae) {
      return abs(constant(1) / (constant(1) + exp(-z)) - constant(t) / cap);
    }
    // 2 (t^(2-p) / ((1-p)(2-p)) - t mu^(1-p) / (1-p) + mu^(2-p) / (2-p)) with p = 1.5.
    T mu = cap * tanh(softplus(z) / cap);
    if (value_of(mu) < 1e-6) mu = constant(1e-6);
    return constant(2) *
           (constant(-4 * std::sqrt(t)) + constant(2 * t) / sqrt(mu) + constant(2) * sqrt(mu));
  }

  // y_o = sum_i w[o][i] x_i for `count` rows of a weight from `first` on.
  std::vector<T> project(const std::string& name, int first, int count,
                         const std::vector<T>& x) const {
    const auto offset = static_cast<std::size_t>(layout_.find(name).offset);
    std::vector<T> y(at(count), T(0));
    for (int o = 0; o < count; ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        y[at(o)] = y[at(o)] + dense[offset + at(first + o) * x.size() + i] * x[i];
      }
    }
    return y;
  }
  std::vector<T> norm(const std::string& name, const std::vector<T>& x) const {
    using std::sqrt;
    const auto offset = static_cast<std::size_t>(layout_.find(name).offset);
    T squares(0);
    for (const T& v : x) squares = squares + v * v;
    const T r = constant(1) / sqrt(squares / constant(static_cast<double>(x.size())) +
                                   constant(config_.norm_eps));
    std::vector<T> y;
    for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * r * dense[offset + i]);
    return y;
  }
  void rotate(std::vector<T>& x, int position) const {
    const int d = config_.head_dim;
    for (int h = 0; h < static_cast<int>(x.size()) / d; ++h) {
      for (int i = 0; i < d / 2; ++i) {
        const double angle = position * std::pow(config_.rope_base, -2.0 * i / d);
        const T c = constant(std::cos(angle)), s = constant(std::sin(angle));
        const T a = x[at(h * d + i)], b = x[at(h * d + i + d / 2)];
        x[at(h * d + i)] = a * c - b * s;
        x[at(h * d + i + d / 2)] = b * c + a * s;
      }
    }
  }
  T capped(T s) const {
    using std::abs;
    using std::tanh;
    const T c = constant(config_.cap);
    if (config_.cap_kind == ops::SoftCap::kTanh) return c * tanh(s / c);
    if (config_.cap_kind == ops::SoftCap::kSoftSign) return s / (constant(1) + abs(s) / c);
    return s;
  }
  static T gelu(T x) {
    using std::tanh;
    const T inner = constant(std::sqrt(2.0 / M_PI)) * (x + constant(0.044715) * x * x * x);
    return constant(0.5) * x * (constant(1) + tanh(inner));
  }

  std::vector<T> token(const features::Batch& batch, int k, int entry) const {
    // The first lookup of this entry: of the kinds before it, then of the entries before it.
    int lookup = 0;
    for (int before = 0; before <= k; ++before) {
      int per_entry = 0;
      for (int f = 0; f < features_of(before); ++f) {
        const auto& feature = feature_at(before, f);
        per_entry += feature.kind == features::Kind::kId ? feature.hashes : 0;
      }
      lookup += per_entry * (before < k ? batch.entries(before) : entry);
    }
    std::vector<T> x;
    for (int f = 0; f < features_of(k); ++f) {
      const auto& feature = feature_at(k, f);
      switch (feature.kind) {
        case features::Kind::kId:
          for (int j = 0; j < feature.hashes; ++j, ++lookup) {
            for (int i = 0; i < config_.table_width; ++i) {
              x.push_back(rows[at(lookup * config_.table_width + i)]);
            }
          }
          break;
        case features::Kind::kCategory:
        case features::Kind::kBucket:
          for (int i = 0; i < feature.size; ++i) {
            x.push_back(constant(batch.feature_int(k, f)[at(entry)] == i ? 1 : 0));
          }
          break;
        case features::Kind::kNumber:
          x.push_back(constant(static_cast<double>(batch.feature_float(k, f)[at(entry)])));
          break;
        case features::Kind::kMultiHot:
          for (int i = 0; i < feature.size; ++i) {
            x.push_back(constant((batch.feature_mask(k, f)[at(entry)] >> i & 1U) != 0 ? 1 : 0));
          }
          break;
      }
    }
    if (x.empty()) return std::vector<T>(at(config_.width), T(0));
    auto h = project("tokens." + schema_.kinds()[at(k)].name + ".weight", 0, config_.width, x);
    for (T& v : h) v = v * constant(std::sqrt(static_cast<double>(config_.width)));
    return h;
  }

  void block(const std::string& name, int keys, Matrix& h) const {
    using std::exp;
    using std::sqrt;
    const int d = config_.head_dim, qw = config_.query_width(), kw = config_.key_width();
    const int group = config_.query_heads / config_.key_heads;
    const int n = static_cast<int>(h.size());
    Matrix q, k, v;
    for (int i = 0; i < n; ++i) {
      const auto x = norm(name + "attention.norm.scale", h[at(i)]);
      const std::string w = name + "attention.qkv.weight";
      q.push_back(norm(name + "attention.q_norm.scale", project(w, 0, qw, x)));
      k.push_back(norm(name + "attention.k_norm.scale", project(w, qw, kw, x)));
      v.push_back(project(w, qw + kw, kw, x));
      rotate(q.back(), std::min(i, keys));
      rotate(k.back(), std::min(i, keys));
    }
    for (int i = 0; i < n; ++i) {
      std::vector<T> o(at(qw), T(0));
      for (int head = 0; head < config_.query_heads; ++head) {
        const int kh = head / group * d;
        std::vector<T> e;
        std::vector<int> read;
        T sum(0);
        for (int j = 0; j < n; ++j) {
          const bool reads = j == i || (j < keys && !(config_.causal && i < keys && j > i));
          if (!reads) continue;
          T s(0);
          for (int c = 0; c < d; ++c) s = s + q[at(i)][at(head * d + c)] * k[at(j)][at(kh + c)];
          e.push_back(exp(capped(s / constant(std::sqrt(static_cast<double>(d))))));
          read.push_back(j);
          sum = sum + e.back();
        }
        for (std::size_t r = 0; r < read.size(); ++r) {
          const T p = e[r] / sum;
          for (int c = 0; c < d; ++c) {
            o[at(head * d + c)] = o[at(head * d + c)] + p * v[at(read[r])][at(kh + c)];
          }
        }
      }
      add(h[at(i)], project(name + "attention.out.weight", 0, config_.width, o));
      auto up =
          project(name + "mlp.up.weight", 0, config_.ffn, norm(name + "mlp.norm.scale", h[at(i)]));
      for (T& u : up) u = gelu(u);
      add(h[at(i)], project(name + "mlp.down.weight", 0, config_.width, up));
    }
  }
  static void add(std::vector<T>& x, const std::vector<T>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + y[i];
  }

  void example(const features::Batch& batch, int b, std::vector<T>& out) const {
    Matrix h;
    for (int p = 0; p < schema_.prefix_tokens(); ++p) h.push_back(token(batch, p, b));
    for (int e = batch.cu_history()[at(b)]; e < batch.cu_history()[at(b) + 1]; ++e) {
      h.push_back(token(batch, schema_.history_kind(), e));
    }
    const int keys = static_cast<int>(h.size());
    for (int e = batch.cu_candidates()[at(b)]; e < batch.cu_candidates()[at(b) + 1]; ++e) {
      h.push_back(token(batch, schema_.candidate_kind(), e));
    }
    for (int l = 0; l < config_.layers; ++l) block("blocks." + std::to_string(l) + ".", keys, h);
    const int actions = static_cast<int>(schema_.actions().size());
    const int outputs = actions + static_cast<int>(schema_.targets().size());
    for (std::size_t c = at(keys); c < h.size(); ++c) {
      const auto z = project("head.weight", 0, outputs, norm("final_norm.scale", h[c]));
      for (int o = 0; o < outputs; ++o) {
        const double scale = o < actions ? 2.0 * std::sqrt(512.0 / config_.width) : 1.0;
        out.push_back(z[at(o)] * constant(scale));
      }
    }
  }

  const ModelConfig& config_;
  const features::Schema& schema_;
  const ParameterLayout& layout_;
};

}  // namespace paceline::model::ref
