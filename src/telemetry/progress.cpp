#include "telemetry/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

namespace paceline::telemetry {

Progress::Progress(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}
Progress::~Progress() { finish(); }

void Progress::draw() {
  std::fprintf(out_, "\r\033[K%s", current_.c_str());
  std::fflush(out_);
  drawn_ = true;
}

void Progress::update(const ProgressSample& sample) { update(progress_text(sample)); }

void Progress::update(const std::string& text) {
  const double interval = terminal_ ? 0.1 : kPlainEvery_s;
  const bool due = last_ == Clock::time_point{} || seconds_since(last_) >= interval;
  current_ = text;
  if (!due) return;
  last_ = Clock::now();
  if (terminal_) {
    draw();
  } else {
    std::fprintf(out_, "%s\n", current_.c_str());
    std::fflush(out_);
  }
}

void Progress::line(const std::string& text) {
  if (terminal_ && drawn_) std::fprintf(out_, "\r\033[K");
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
  if (terminal_ && drawn_) draw();
}

void Progress::finish() {
  if (terminal_ && drawn_) {
    draw();
    std::fprintf(out_, "\n");
    std::fflush(out_);
  }
  drawn_ = false;
}

std::string progress_text(const ProgressSample& s) {
  return fmt::format(
      "step {}  epoch {}/{}  {:.0f} %  loss {:.5f}  {:.0f} examples/s  wait {:.1f} %  ETA {}",
      s.step, s.epoch + 1, s.epochs, 100.0 * s.fraction, s.loss, s.examples_per_s,
      100.0 * s.wait_share, duration_text(s.eta_s));
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "unknown";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

bool is_terminal(std::FILE* file) { return isatty(fileno(file)) == 1; }

}  // namespace paceline::telemetry
