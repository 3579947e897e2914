// Where threads of a hand-off sleep until something changed.
//
// Guarantee: a change made before notify() is seen by every await() that is under way or begins
// later; no wake-up is lost. Mechanism: an event count. A waiter registers (sequentially
// consistent), then looks again, then sleeps; a notifier changes (sequentially consistent), then
// looks for registered waiters. Either the waiter sees the change or the notifier sees the waiter.
// So what `ready` reads and the notifier wrote must be sequentially consistent too.
// Limits: notify() costs one load while nobody sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/clock.hpp"

namespace paceline::pipeline {

class EventCount {
 public:
  // Blocks until ready() or the deadline; returns ready().
  template <typename Ready>
  bool await(Ready&& ready, Deadline deadline) {
    for (int i = 0; i < kSpins; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1);
    bool is_ready = ready();
    while (!is_ready && Clock::now() < deadline) {
      // Short waits on the system clock, since not every thread checker knows waits on a steady
      // one.
      const auto left =
          deadline == Deadline::max() ? Clock::duration(kSlice) : deadline - Clock::now();
      changed_.wait_until(
          lock, std::chrono::system_clock::now() + std::min<Clock::duration>(left, kSlice));
      is_ready = ready();
    }
    waiters_.fetch_sub(1);
    return is_ready;
  }

  void notify() {
    if (waiters_.load() == 0) return;
    // Between a waiter's look and its sleep it holds the mutex.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  static constexpr int kSpins = 64;
  static constexpr std::chrono::milliseconds kSlice{100};

  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace paceline::pipeline
