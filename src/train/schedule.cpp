#include "train/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::train {

Schedule::Schedule(ScheduleKind kind, double warmup, double final_factor)
    : kind_(kind), warmup_(warmup), final_(kind == ScheduleKind::kConstant ? 1.0 : final_factor) {
  PL_CHECK(warmup_ >= 0 && warmup_ <= 1, "schedule.warmup is in [0, 1]");
  PL_CHECK(final_ >= 0 && final_ <= 1, "schedule.final is in [0, 1]");
}

Result<Schedule> Schedule::from_config(Config& config) {
  PL_TRY(const auto name,
         config.get_choice("schedule.kind", {"constant", "linear", "cosine"}, "constant"));
  PL_TRY(const auto warmup, config.get_number("schedule.warmup", 0.0, {.min = 0, .max = 1}));
  if (name == "constant") {
    if (config.has("schedule.final")) {
      return config.invalid("schedule.final", "a value beside schedule.kind = \"constant\"",
                            "only with kind linear or cosine");
    }
    return Schedule(ScheduleKind::kConstant, warmup, 1.0);
  }
  PL_TRY(const auto final_factor, config.get_number("schedule.final", 0.0, {.min = 0, .max = 1}));
  const auto kind = name == "linear" ? ScheduleKind::kLinear : ScheduleKind::kCosine;
  return Schedule(kind, warmup, final_factor);
}

double Schedule::curve(double progress) const {
  constexpr double kPi = 3.14159265358979323846;
  switch (kind_) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kLinear:
      return final_ + (1.0 - final_) * (1.0 - progress);
    case ScheduleKind::kCosine:
      return final_ + (1.0 - final_) * 0.5 * (1.0 + std::cos(kPi * progress));
  }
  return 1.0;
}

double Schedule::factor(double before, double after) const {
  before = std::clamp(before, 0.0, 1.0);
  after = std::clamp(after, 0.0, 1.0);
  const double warm = warmup_ > 0 ? std::min(1.0, after / warmup_) : 1.0;
  return std::clamp(warm * curve(before), 0.0, 1.0);
}

}  // namespace paceline::train
