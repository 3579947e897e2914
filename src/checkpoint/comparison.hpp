// How two sets of tensors differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace paceline::checkpoint {

enum class Difference : std::uint8_t {
  kOnlyInA,
  kOnlyInB,
  kShape,   // another type or shape: values are not compared
  kValues,  // other bits
};

struct TensorDifference {
  std::string name;
  Difference what = Difference::kValues;
  std::optional<TensorInfo> a, b;
  // Of kValues. An element differs when its bits do: -0 and 0 differ, by nothing.
  std::int64_t elements = 0, differing = 0;
  std::int64_t not_finite = 0;  // of the differing ones: those where a value is not finite
  double max_abs = 0.0;         // largest |a - b| of the others
  double max_rel = 0.0;         // and largest |a - b| / max(|a|, |b|)
  std::int64_t at = 0;  // first element with it, or the first that differs when there is none
  double value_a = 0.0, value_b = 0.0;  // there
};

// By name, equal tensors left out. Names are unique within a set.
std::vector<TensorDifference> compare_tensors(std::span<const Tensor> a, std::span<const Tensor> b);

}  // namespace paceline::checkpoint
