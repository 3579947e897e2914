// The factor on the learning rates as a function of the progress of a run in rows.
#pragma once

#include <cstdint>

#include "core/config.hpp"
#include "core/error.hpp"

namespace paceline::train {

enum class ScheduleKind : std::uint8_t {
  kConstant,  // curve(p) = 1
  kLinear,    // curve(p) = final + (1 - final) (1 - p)
  kCosine,    // curve(p) = final + (1 - final) (1 + cos(pi p)) / 2
};

// A value; pure functions of their arguments, usable from any thread.
class Schedule {
 public:
  Schedule() = default;  // constant, no warm-up
  // `warmup`: fraction of the run, `final`: fraction of the peak at the end; both in [0, 1].
  Schedule(ScheduleKind kind, double warmup, double final_factor);

  // Reads schedule.kind ("constant" | "linear" | "cosine", default constant), schedule.warmup
  // (default 0) and, for linear and cosine, schedule.final (default 0).
  static Result<Schedule> from_config(Config& config);

  // The factor of a step that takes the run's progress from `before` to `after`, where progress is
  // rows consumed / (epochs x rows), clamped to [0, 1]:
  //   min(1, after / warmup) x curve(before)
  // Warm-up counts the rows of the step itself, so that the first step is not lost to a factor of
  // zero; the curve does not, so that it starts at the peak. In [0, 1].
  double factor(double before, double after) const;

  ScheduleKind kind() const { return kind_; }
  double warmup() const { return warmup_; }
  double final_factor() const { return final_; }

 private:
  double curve(double progress) const;

  ScheduleKind kind_ = ScheduleKind::kConstant;
  double warmup_ = 0.0;
  double final_ = 1.0;
};

}  // namespace paceline::train
