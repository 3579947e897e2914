// Where the threads of a hand-off sleep until a condition on atomics holds: an event count.
//
// Guarantee: a change made before notify() is seen by every await() under way or begun later; no
// wake-up is lost.
// Mechanism: a waiter announces itself, then looks, then sleeps; a notifier changes, then looks for
// waiters. All four are sequentially consistent, so that at least one sees the other. The mutex
// covers the step from looking to sleeping.
// Limits: the condition reads only atomics, sequentially consistent, and does not block. notify()
// is one load while nobody waits.
// Shutdown: destroy after every await() and notify() has returned.
// Not for: the short gaps inside a loop (task_pool.hpp).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "core/clock.hpp"

namespace paceline::pipeline {

// What an event count sleeps on; tests put in a scheduled one.
struct StdSync {
  using Mutex = std::mutex;
  using Condition = std::condition_variable;
};

template <template <typename> class Atom, typename Sync>
class BasicEventCount {
 public:
  // Blocks until ready() or the deadline (Deadline::max(): none); returns what ready() said last.
  // Any number of threads.
  template <typename Ready>
  bool await(Ready&& ready, Deadline deadline) {
    waiters_.fetch_add(1);
    bool is_ready = false;
    {
      std::unique_lock<typename Sync::Mutex> lock(mutex_);
      is_ready = ready();
      for (bool late = false; !is_ready && !late;) {
        late = changed_.wait_until(lock, deadline) == std::cv_status::timeout;
        is_ready = ready();
      }
    }
    waiters_.fetch_sub(1);
    return is_ready;
  }

  // Call after the sequentially consistent store that may make ready() true.
  void notify() {
    if (waiters_.load() == 0) return;
    { const std::lock_guard<typename Sync::Mutex> lock(mutex_); }
    changed_.notify_all();
  }

 private:
  Atom<int> waiters_{0};
  typename Sync::Mutex mutex_;
  typename Sync::Condition changed_;
};

using EventCount = BasicEventCount<std::atomic, StdSync>;

}  // namespace paceline::pipeline
