// How far a producer may go: items [0, open). Used for what slots alone cannot say: how many
// batches may be cut ahead, and that nothing is read before it is asked for.
// Any threads; a stop wakes all. Private to this room.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "core/clock.hpp"

namespace paceline::data {

class Gate {
 public:
  explicit Gate(std::int64_t open) : open_(open) {}

  // Blocks until `item` may pass; false after a stop.
  bool pass(std::int64_t item) {
    std::unique_lock lock(mutex_);
    if (item < open_ || stopped_) return !stopped_;
    const std::int64_t start = now_ns();
    changed_.wait(lock, [&] { return item < open_ || stopped_; });
    waited_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return !stopped_;
  }

  // Items below `to` may pass from now on.
  void open_to(std::int64_t to) {
    {
      const std::lock_guard lock(mutex_);
      if (to <= open_) return;
      open_ = to;
    }
    changed_.notify_all();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

  std::int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t open_;
  bool stopped_ = false;
  std::atomic<std::int64_t> waited_ns_{0};
};

}  // namespace paceline::data
