#include "checkpoint/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace paceline::checkpoint {
namespace {

template <typename T>
Tensor tensor(std::string name, Dtype dtype, const std::vector<T>& values) {
  HostBuffer bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size_bytes());
  return {std::move(name), dtype, {static_cast<std::int64_t>(values.size())}, std::move(bytes)};
}

template <typename T>
TensorDifference only(Dtype dtype, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<Tensor> x, y;
  x.push_back(tensor("t", dtype, a));
  y.push_back(tensor("t", dtype, b));
  const auto all = compare_tensors(x, y);
  EXPECT_EQ(all.size(), 1U);
  return all.empty() ? TensorDifference{} : all.front();
}

TEST(Comparison, TheLargestDifferenceIsTheFirstOfItsSize) {
  const auto d = only<float>(Dtype::kF32, {1, 2, 3, 4, 5}, {1, 2.5F, 0, 7, 5});
  EXPECT_EQ(d.what, Difference::kValues);
  EXPECT_EQ(d.elements, 5);
  EXPECT_EQ(d.differing, 3);
  EXPECT_EQ(d.not_finite, 0);
  EXPECT_EQ(d.max_abs, 3.0);
  EXPECT_EQ(d.max_rel, 1.0) << "3 and 0";
  EXPECT_EQ(d.at, 2);
  EXPECT_EQ(d.value_a, 3.0);
  EXPECT_EQ(d.value_b, 0.0);
}

TEST(Comparison, WhatIsNotFiniteHidesNothing) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  auto d = only<float>(Dtype::kF32, {kNan, kInf, 1, kNan, kNan}, {kNan, 1, 2, 1, 1});
  EXPECT_EQ(d.differing, 4) << "the same NaN is equal";
  EXPECT_EQ(d.not_finite, 3);
  EXPECT_EQ(d.max_abs, 1.0);
  EXPECT_EQ(d.at, 2);
  d = only<float>(Dtype::kF32, {1, 0, kInf}, {1, kNan, 4});
  EXPECT_EQ(d.not_finite, 2);
  EXPECT_EQ(d.at, 1);
  EXPECT_TRUE(std::isnan(d.value_b));
  EXPECT_EQ(d.max_abs, 0.0);
  EXPECT_EQ(d.max_rel, 0.0);
}

TEST(Comparison, ASmallValueMayDifferMostRelatively) {
  const auto d = only<float>(Dtype::kF32, {1000, -0.5F, 2}, {1001, -2, 2});
  EXPECT_EQ(d.max_abs, 1.5);
  EXPECT_EQ(d.max_rel, 0.75);
  const auto other = only<float>(Dtype::kF32, {1000, -0.5F}, {1008, -0.25F});
  EXPECT_EQ(other.max_abs, 8.0);
  EXPECT_EQ(other.at, 0);
  EXPECT_EQ(other.max_rel, 0.5) << "of the other element";
}

TEST(Comparison, SignsOfZeroDifferByNothing) {
  const auto d = only<float>(Dtype::kF32, {1, -0.0F}, {1, 0.0F});
  EXPECT_EQ(d.differing, 1);
  EXPECT_EQ(d.max_abs, 0.0);
  EXPECT_EQ(d.max_rel, 0.0);
  EXPECT_EQ(d.at, 1);
}

TEST(Comparison, EveryTypeIsCompared) {
  EXPECT_EQ(only<std::uint16_t>(Dtype::kBF16, {0x3F80, 0x4000}, {0x3F80, 0x4040}).max_abs, 1.0);
  EXPECT_EQ(only<std::int64_t>(Dtype::kI64, {-5}, {7}).max_abs, 12.0);
  EXPECT_EQ(only<std::int32_t>(Dtype::kI32, {-5, 1}, {-5, 3}).at, 1);
  EXPECT_EQ(only<std::uint8_t>(Dtype::kU8, {0}, {255}).max_abs, 255.0);
}

TEST(Comparison, NamesTypesAndShapes) {
  std::vector<Tensor> a, b;
  a.push_back(tensor<float>("same", Dtype::kF32, {1, 2}));
  a.push_back(tensor<float>("empty", Dtype::kF32, {}));
  a.push_back(tensor<float>("longer", Dtype::kF32, {1}));
  a.push_back(tensor<float>("type", Dtype::kF32, {1}));
  a.push_back(tensor<float>("left", Dtype::kF32, {1}));
  b.push_back(tensor<std::int32_t>("type", Dtype::kI32, {1}));
  b.push_back(tensor<float>("right", Dtype::kF32, {1}));
  b.push_back(tensor<float>("longer", Dtype::kF32, {1, 1}));
  b.push_back(tensor<float>("empty", Dtype::kF32, {}));
  b.push_back(tensor<float>("same", Dtype::kF32, {1, 2}));
  const auto all = compare_tensors(a, b);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].name, "left");
  EXPECT_EQ(all[0].what, Difference::kOnlyInA);
  EXPECT_FALSE(all[0].b);
  EXPECT_EQ(all[1].name, "longer");
  EXPECT_EQ(all[1].what, Difference::kShape);
  EXPECT_EQ(all[1].b->shape[0], 2);
  EXPECT_EQ(all[2].name, "right");
  EXPECT_EQ(all[2].what, Difference::kOnlyInB);
  EXPECT_EQ(all[3].name, "type");
  EXPECT_EQ(all[3].what, Difference::kShape);
  EXPECT_TRUE(compare_tensors(a, a).empty());
}

}  // namespace
}  // namespace paceline::checkpoint
