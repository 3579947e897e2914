// What a person watching a run sees: one live line on a terminal, plain lines elsewhere.
//
// Reads numbers that the training loop measured; measures nothing itself. Called from one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/clock.hpp"

namespace paceline::telemetry {

struct ProgressSample {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // 0-based
  std::int64_t epochs = 1;
  double loss = 0.0;
  double examples_per_s = 0.0;
  double wait_share = 0.0;  // exposed wait / time, in [0, 1]
  double fraction = 0.0;    // of the run done, in [0, 1]
  double eta_s = 0.0;
};

class Progress {
 public:
  // Writes to `out` (not owned); `terminal` chooses the live line.
  Progress(std::FILE* out, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws the live line at most ten times a second, or prints a plain line at most every
  // `plain_every_s` seconds.
  void update(const ProgressSample& sample);
  // The same for work other than training.
  void update(const std::string& text);
  // A line that stays; the live line is drawn again below it.
  void line(const std::string& text);
  // Ends the live line, leaving the last state visible.
  void finish();

 private:
  void draw();
  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false;
  std::string current_;
  Clock::time_point last_{};
  static constexpr double kPlainEvery_s = 5.0;
};

// "step 120  epoch 1/2  loss 1.2345  1234 examples/s  wait 0.3 %  ETA 12 s"
std::string progress_text(const ProgressSample& sample);
// "45 s", "12 min 3 s", "3 h 20 min".
std::string duration_text(double seconds);
// True when `file` is a terminal.
bool is_terminal(std::FILE* file);

}  // namespace paceline::telemetry
