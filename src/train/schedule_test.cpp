#include "train/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace paceline::train {
namespace {

TEST(Schedule, ConstantIsOneEverywhere) {
  const Schedule s;
  for (const double p : {0.0, 0.3, 1.0}) EXPECT_EQ(s.factor(p, p), 1.0);
}

TEST(Schedule, LinearGoesFromPeakToFinal) {
  const Schedule s(ScheduleKind::kLinear, 0.0, 0.25);
  EXPECT_DOUBLE_EQ(s.factor(0.0, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(s.factor(0.5, 0.6), 0.625);
  EXPECT_DOUBLE_EQ(s.factor(1.0, 1.0), 0.25);
}

TEST(Schedule, CosineGoesFromPeakToFinal) {
  const Schedule s(ScheduleKind::kCosine, 0.0, 0.1);
  EXPECT_DOUBLE_EQ(s.factor(0.0, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(s.factor(0.5, 0.6), 0.55);
  EXPECT_DOUBLE_EQ(s.factor(1.0, 1.0), 0.1);
}

// With batches of equal rows the progress is a step count, and the factor is the usual
// min(1, (i + 1) / warm-up steps) x (0.1 + 0.9 (1 + cos(pi i / steps)) / 2).
TEST(Schedule, EqualsTheStepwiseFormula) {
  constexpr int kSteps = 300, kWarmup = 50;
  const Schedule s(ScheduleKind::kCosine, double{kWarmup} / kSteps, 0.1);
  for (int i = 0; i < kSteps; ++i) {
    const double expected = std::min(1.0, (i + 1.0) / kWarmup) *
                            (0.1 + 0.9 * 0.5 * (1 + std::cos(3.14159265358979323846 * i / kSteps)));
    EXPECT_NEAR(s.factor(double(i) / kSteps, (i + 1.0) / kSteps), expected, 1e-12) << i;
  }
}

TEST(Schedule, StaysInRangeOutsideTheRun) {
  const Schedule s(ScheduleKind::kLinear, 0.2, 0.0);
  EXPECT_EQ(s.factor(0.0, 0.0), 0.0);
  EXPECT_EQ(s.factor(1.5, 1.7), 0.0);
  EXPECT_EQ(s.factor(-1.0, -0.5), 0.0);
  EXPECT_DOUBLE_EQ(s.factor(0.0, 0.1), 0.5);
}

Config parse(const char* text) {
  auto c = Config::parse(text, "test.toml");
  EXPECT_TRUE(c.ok());
  return std::move(*c);
}

TEST(Schedule, ReadsTheConfig) {
  auto config = parse("[schedule]\nkind = \"cosine\"\nwarmup = 0.1667\nfinal = 0.1\n");
  const auto s = Schedule::from_config(config);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kind(), ScheduleKind::kCosine);
  EXPECT_EQ(s->warmup(), 0.1667);
  EXPECT_EQ(s->final_factor(), 0.1);
  EXPECT_TRUE(config.finish().ok());
}

TEST(Schedule, Defaults) {
  auto empty = parse("");
  const auto constant = Schedule::from_config(empty);
  ASSERT_TRUE(constant.ok());
  EXPECT_EQ(constant->kind(), ScheduleKind::kConstant);
  EXPECT_EQ(constant->warmup(), 0.0);
  auto linear = parse("[schedule]\nkind = \"linear\"\n");
  EXPECT_EQ(Schedule::from_config(linear)->final_factor(), 0.0);
}

TEST(Schedule, RefusesWhatCannotBe) {
  for (const char* text : {"[schedule]\nkind = \"cosin\"\n", "[schedule]\nwarmup = 1.5\n",
                           "[schedule]\nkind = \"linear\"\nfinal = -0.1\n",
                           "[schedule]\nkind = \"constant\"\nfinal = 0.1\n"}) {
    auto config = parse(text);
    const auto s = Schedule::from_config(config);
    ASSERT_FALSE(s.ok()) << text;
    EXPECT_EQ(s.error().code(), Code::kInvalidArgument);
    EXPECT_NE(s.error().text().find("schedule."), std::string::npos) << s.error().text();
  }
}

}  // namespace
}  // namespace paceline::train
