// One AdamW step of one parameter by its definition; T double is the reference, float the naive
// fp32.
#pragma once

#include <cmath>

#include "ops/adamw/adamw.hpp"

namespace paceline::ops {

template <typename T>
struct AdamWState {
  T p, m, v;
};

template <typename T>
AdamWState<T> adamw_ref(const AdamWArgs& a, T grad, AdamWState<T> s) {
  const auto cast = [](double v) { return static_cast<T>(v); };
  const T g = cast(a.grad_scale) * grad;
  s.m = cast(a.beta1) * s.m + cast(1 - a.beta1) * g;
  s.v = cast(a.beta2) * s.v + cast(1 - a.beta2) * g * g;
  const auto t = static_cast<double>(a.t);
  const T m_hat = s.m / cast(1 - std::pow(a.beta1, t));
  const T v_hat = s.v / cast(1 - std::pow(a.beta2, t));
  s.p -= cast(a.lr) * (m_hat / (std::sqrt(v_hat) + cast(a.eps)) + cast(a.weight_decay) * s.p);
  return s;
}

}  // namespace paceline::ops
