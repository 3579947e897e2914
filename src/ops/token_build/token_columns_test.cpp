// Where the GPU's X holds the columns of a kind's weight.
#include <gtest/gtest.h>

#include "ops/token_build/token_build_cuda.hpp"

namespace paceline::ops {
namespace {

TokenInput input(TokenColumn column, int width) {
  TokenInput in;
  in.column = column;
  in.width = width;
  return in;
}

TEST(TokenColumnsTest, TablesStartAtMultiplesOfEightAndTheRestIsPacked) {
  const std::vector<TokenInput> inputs{input(TokenColumn::kNumber, 1),
                                       input(TokenColumn::kTableRows, 2),
                                       input(TokenColumn::kOneHot, 3), input(TokenColumn::kMask, 2),
                                       input(TokenColumn::kTableRows, 1)};
  const TokenColumns columns(inputs, 12);
  EXPECT_EQ(columns.width, 1 + 24 + 3 + 2 + 12);
  EXPECT_EQ(columns.first_column, (std::vector<std::int32_t>{0, 8, 32, 35, 40}));
  EXPECT_EQ(columns.k_padded, 56);
}

TEST(TokenColumnsTest, BothWaysAgreeAndPadsHaveNoColumn) {
  const std::vector<TokenInput> inputs{input(TokenColumn::kMask, 5),
                                       input(TokenColumn::kTableRows, 3),
                                       input(TokenColumn::kNumber, 1)};
  const TokenColumns columns(inputs, 7);
  ASSERT_EQ(columns.padded_column.size(), static_cast<std::size_t>(columns.width));
  ASSERT_EQ(columns.weight_column.size(), static_cast<std::size_t>(columns.k_padded));
  int pads = 0;
  for (const auto c : columns.weight_column) pads += c < 0;
  EXPECT_EQ(pads, columns.k_padded - columns.width);
  for (std::size_t c = 0; c < columns.padded_column.size(); ++c) {
    EXPECT_EQ(columns.weight_column[static_cast<std::size_t>(columns.padded_column[c])],
              static_cast<std::int32_t>(c));
  }
}

TEST(TokenColumnsTest, OfNothing) {
  const TokenColumns columns({}, 8);
  EXPECT_EQ(columns.width, 0);
  EXPECT_EQ(columns.k_padded, 0);
}

}  // namespace
}  // namespace paceline::ops
