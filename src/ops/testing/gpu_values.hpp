// Values of the GPU's number types, for the tests of GPU ops.
#pragma once

#include <vector>

#include "device/bfloat16.hpp"

namespace paceline::ops::testing {

inline float as_float(float x) { return x; }
inline float as_float(device::BFloat16 x) { return device::to_float(x); }
template <typename T>
T as(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return device::to_bfloat16(x);
  }
}

template <typename T>
std::vector<T> all_as(const std::vector<float>& from) {
  std::vector<T> out;
  out.reserve(from.size());
  for (const float x : from) out.push_back(as<T>(x));
  return out;
}
template <typename T>
std::vector<float> all_as_float(const std::vector<T>& from) {
  std::vector<float> out;
  out.reserve(from.size());
  for (const T x : from) out.push_back(as_float(x));
  return out;
}

}  // namespace paceline::ops::testing
