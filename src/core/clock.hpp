// Monotonic time, for waits, deadlines and rates.
#pragma once

#include <chrono>
#include <cstdint>

namespace paceline {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace paceline
