// The losses by their definitions; T double is the reference, float the naive fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ops/loss/loss.hpp"

namespace paceline::ops {

template <typename T>
struct LossRef {
  T loss = 0;
  std::vector<T> d_logits, by_output;
};

template <typename T>
T sigmoid_ref(T z) {
  return T{1} / (1 + std::exp(-z));
}

template <typename T>
T cross_entropy_ref(T z, bool label) {
  return std::max(z, T{0}) - (label ? z : T{0}) + std::log1p(std::exp(-std::abs(z)));
}

template <typename T>
T sigmoid_mae_ref(T z, T target, T cap) {
  return std::abs(sigmoid_ref(z) - std::clamp(target, T{0}, cap) / cap);
}

// Deviance in its general form.
template <typename T>
T tweedie_ref(T z, T target, T cap) {
  const T p = T{1.5};
  const T t = std::clamp(target, T{0}, cap);
  const T soft = std::max(z, T{0}) + std::log1p(std::exp(-std::abs(z)));
  const T mu = std::max(cap * std::tanh(soft / cap), static_cast<T>(1e-6));
  return 2 * (std::pow(t, 2 - p) / ((1 - p) * (2 - p)) - t * std::pow(mu, 1 - p) / (1 - p) +
              std::pow(mu, 2 - p) / (2 - p));
}

template <typename T>
T tweedie_slope_ref(T z, T target, T cap) {
  const T t = std::clamp(target, T{0}, cap);
  const T soft = std::max(z, T{0}) + std::log1p(std::exp(-std::abs(z)));
  const T bend = std::tanh(soft / cap);
  const T mu = cap * bend;
  if (mu < static_cast<T>(1e-6)) return 0;
  return 2 * (std::pow(mu, T{-0.5}) - t * std::pow(mu, T{-1.5})) * (1 - bend * bend) *
         sigmoid_ref(z);
}

template <typename T>
LossRef<T> loss_ref(const LossArgs& a, const std::vector<T>& logits) {
  const std::size_t actions = a.bits.size(), outputs = actions + a.heads.size();
  const auto candidates = static_cast<std::size_t>(a.candidates);
  LossRef<T> out{0, std::vector<T>(logits.size()), std::vector<T>(outputs)};
  for (std::size_t c = 0; c < candidates; ++c) {
    for (std::size_t o = 0; o < outputs; ++o) {
      const T z = logits[c * outputs + o];
      T loss, slope, weight;
      if (o < actions) {
        const bool label = (a.labels[c] >> a.bits[o] & 1U) != 0;
        weight = a.weights[o];
        loss = cross_entropy_ref(z, label);
        slope = sigmoid_ref(z) - (label ? T{1} : T{0});
      } else {
        const RegressionHead& head = a.heads[o - actions];
        const T t = head.target[c], cap = head.cap;
        weight = head.weight;
        if (head.loss == RegressionLoss::kSigmoidMae) {
          const T s = sigmoid_ref(z);
          loss = sigmoid_mae_ref(z, t, cap);
          slope = (s > std::clamp(t, T{0}, cap) / cap ? 1 : -1) * s * (1 - s);
        } else {
          loss = tweedie_ref(z, t, cap);
          slope = tweedie_slope_ref(z, t, cap);
        }
      }
      const T share = weight / static_cast<T>(candidates);
      out.by_output[o] += share * loss;
      out.loss += share * loss;
      out.d_logits[c * outputs + o] = share * slope;
    }
  }
  return out;
}

}  // namespace paceline::ops
