#include "core/error.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace paceline {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalidArgument, "odd: " + std::to_string(n));
  return n / 2;
}
Result<int> quarter(int n) {
  PL_TRY(const int h, half(n));
  PL_TRY(const int q, half(h).context("halving again"));
  return q;
}
Result<void> check_quarter(int n) {
  PL_TRY_VOID(quarter(n).context("checking"));
  return {};
}

TEST(Result, CarriesAValue) {
  const auto result = quarter(8);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 2);
  EXPECT_TRUE(check_quarter(8).ok());
}

TEST(Result, CarriesAnErrorUpWithItsContext) {
  const auto result = check_quarter(6);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(result.error().message(), "odd: 3");
  EXPECT_EQ(result.error().text(), "odd: 3 (while halving again; while checking)");
  EXPECT_EQ(check_quarter(7).error().text(), "odd: 7 (while checking)");
}

TEST(Result, HoldsWhatOnlyMoves) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(4); };
  const auto use = [&]() -> Result<int> {
    PL_TRY(const std::unique_ptr<int> value, make().context("making"));
    return *value;
  };
  EXPECT_EQ(*use(), 4);
}

TEST(Error, KnowsWhereItWasMade) {
  const Error error(Code::kIo, "disk full");
  EXPECT_NE(std::string(error.at().file).find("error_test.cpp"), std::string::npos);
  EXPECT_EQ(error.at().line, __LINE__ - 2);
  EXPECT_EQ(error.text(), "disk full");
}

TEST(Error, CodesHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (int c = 0; c <= static_cast<int>(Code::kInternal); ++c) {
    names.insert(name_of(static_cast<Code>(c)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::kInternal) + 1);
  EXPECT_FALSE(names.contains("unknown error"));
}

TEST(Error, ExitCodes) {
  EXPECT_EQ(exit_code(Error(Code::kInvalidArgument, "")), 2);
  EXPECT_EQ(exit_code(Error(Code::kNotFound, "")), 2);
  EXPECT_EQ(exit_code(Error(Code::kIo, "")), 1);
  EXPECT_EQ(exit_code(Error(Code::kInternal, "")), 1);
}

TEST(CheckDeathTest, AbortsWithPlaceAndAssumption) {
  const int n = 3;
  PL_CHECK(n == 3, "never seen");
  EXPECT_DEATH(PL_CHECK(n == 4, "n is four"), "error_test.cpp:[0-9]+: .*n is four.*n == 4");
}

}  // namespace
}  // namespace paceline
