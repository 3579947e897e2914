#include "checkpoint/comparison.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>

namespace paceline::checkpoint {
namespace {

template <typename T>
double value_of(T bits) {
  return static_cast<double>(bits);
}
// As stored: the upper half of an F32.
struct BF16 {
  std::uint16_t bits;
};
double value_of(BF16 v) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16));
}

template <typename T>
void compare_elements(const Tensor& a, const Tensor& b, TensorDifference& found) {
  bool any = false, any_finite = false;
  for (std::int64_t i = 0; i < found.elements; ++i) {
    const auto offset = static_cast<std::size_t>(i) * sizeof(T);
    if (std::memcmp(a.bytes.data() + offset, b.bytes.data() + offset, sizeof(T)) == 0) continue;
    T x, y;
    std::memcpy(&x, a.bytes.data() + offset, sizeof(T));
    std::memcpy(&y, b.bytes.data() + offset, sizeof(T));
    ++found.differing;
    const double u = value_of(x), v = value_of(y);
    const bool finite = std::isfinite(u) && std::isfinite(v);
    if (!finite) ++found.not_finite;
    const double by = finite ? std::abs(u - v) : 0.0;
    // Zeros of two signs differ by nothing.
    if (by > 0.0) found.max_rel = std::max(found.max_rel, by / std::max(std::abs(u), std::abs(v)));
    if (any && (!finite || (any_finite && by <= found.max_abs))) continue;
    any = true;
    any_finite = any_finite || finite;
    found.max_abs = by;
    found.at = i;
    found.value_a = u;
    found.value_b = v;
  }
}

void compare_values(const Tensor& a, const Tensor& b, TensorDifference& found) {
  const std::size_t bytes = a.bytes.size_bytes();
  found.elements = static_cast<std::int64_t>(bytes / size_of(a.dtype));
  if (bytes == 0 || std::memcmp(a.bytes.data(), b.bytes.data(), bytes) == 0) return;
  switch (a.dtype) {
    case Dtype::kF32:
      return compare_elements<float>(a, b, found);
    case Dtype::kBF16:
      return compare_elements<BF16>(a, b, found);
    case Dtype::kI64:
      return compare_elements<std::int64_t>(a, b, found);
    case Dtype::kI32:
      return compare_elements<std::int32_t>(a, b, found);
    case Dtype::kU8:
      return compare_elements<std::uint8_t>(a, b, found);
  }
}

TensorInfo info_of(const Tensor& t) { return {t.name, t.dtype, t.shape}; }

}  // namespace

std::vector<TensorDifference> compare_tensors(std::span<const Tensor> a,
                                              std::span<const Tensor> b) {
  std::map<std::string, std::pair<const Tensor*, const Tensor*>> names;
  for (const auto& t : a) names[t.name].first = &t;
  for (const auto& t : b) names[t.name].second = &t;
  std::vector<TensorDifference> all;
  for (const auto& [name, both] : names) {
    const auto [x, y] = both;
    TensorDifference found;
    found.name = name;
    if (x != nullptr) found.a = info_of(*x);
    if (y != nullptr) found.b = info_of(*y);
    if (y == nullptr) {
      found.what = Difference::kOnlyInA;
    } else if (x == nullptr) {
      found.what = Difference::kOnlyInB;
    } else if (found.a != found.b) {
      found.what = Difference::kShape;
    } else {
      compare_values(*x, *y, found);
      if (found.differing == 0) continue;
    }
    all.push_back(std::move(found));
  }
  return all;
}

}  // namespace paceline::checkpoint
