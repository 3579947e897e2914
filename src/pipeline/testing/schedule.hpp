// Runs threads one at a time in an order that follows from a seed, so that an interleaving can be
// found by trying seeds and run again by naming one; or in every order (choices.hpp).
//
// Code under test takes its atomics, mutexes and conditions as template parameters; here they are
// TestAtomic and ScheduledSync, and each access is a point where another thread may go on. Only
// sequentially consistent interleavings are tried: weaker orders are the thread sanitizer's part.
// A wait with a deadline may time out at any point, one without never does. Threads that all wait
// (a lost wake-up) end the run. Tests only; objects must be used inside one Schedule at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "pipeline/testing/choices.hpp"

namespace paceline::pipeline::testing {

// The first seed of a test: PL_TEST_SEED, or else `fallback`.
inline std::uint64_t first_seed(std::uint64_t fallback) {
  const char* text = std::getenv("PL_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : own_(std::make_unique<RandomChoices>(seed)), choices_(*own_) {}
  explicit Schedule(Choices& choices) : choices_(choices) {}

  void spawn(std::function<void()> body) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->body = std::move(body);
  }

  // Runs all to their end. Empty, or what went wrong: "all threads wait", "no end in sight".
  std::string run() {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      threads_[i]->thread = std::thread([this, i] { live(i); });
    }
    {
      const std::lock_guard lock(mutex_);
      hand_on();
    }
    for (auto& thread : threads_) thread->thread.join();
    return failure_;
  }

  // Another thread may go on here. Outside of a schedule: nothing.
  static void yield() {
    if (current_ != nullptr) current_->step();
  }

  // Blocks the calling thread until unblock(on), or with `timed` at any time. False: timed out.
  static bool block(const void* on, bool timed) { return current_->sleep(on, timed); }
  static void unblock(const void* on) {
    if (current_ != nullptr) current_->wake(on);
  }

 private:
  struct Thread {
    std::function<void()> body;
    std::thread thread;
    std::condition_variable turn;
    const void* waits_on = nullptr;
    bool timed = false;
    bool timed_out = false;
    bool over = false;
  };
  struct Abandoned {};  // unwinds a thread of a run that failed

  static constexpr std::size_t kNobody = ~std::size_t{0};
  static constexpr std::int64_t kMostSteps = 100'000;

  void live(std::size_t self) {
    current_ = this;
    self_ = self;
    try {
      {
        std::unique_lock lock(mutex_);
        await_turn(lock);
      }
      threads_[self]->body();
    } catch (const Abandoned&) {
    }
    const std::lock_guard lock(mutex_);
    threads_[self]->over = true;
    hand_on();
  }

  void step() {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) return leave();
    if (++steps_ > kMostSteps) fail("no end in sight");
    if (count_able(self_) > 0 && choices_.interrupts()) hand_on(self_);
    await_turn(lock);
  }

  bool sleep(const void* on, bool timed) {
    std::unique_lock lock(mutex_);
    Thread& me = *threads_[self_];
    if (!failure_.empty()) {
      leave();
      return false;
    }
    me.waits_on = on;
    me.timed = timed;
    me.timed_out = false;
    hand_on();
    await_turn(lock);
    return !me.timed_out;
  }

  void wake(const void* on) {
    const std::lock_guard lock(mutex_);
    for (auto& thread : threads_) {
      if (thread->waits_on == on) thread->waits_on = nullptr;
    }
  }

  // A timed wait can go on, by timing out.
  static bool is_able(const Thread& t) { return !t.over && (t.waits_on == nullptr || t.timed); }
  std::size_t count_able(std::size_t except) const {
    std::size_t able = 0;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (i != except && is_able(*threads_[i])) ++able;
    }
    return able;
  }

  // Gives the turn to a thread that can go on, if any but `except` can.
  void hand_on(std::size_t except = kNobody) {
    const std::size_t able = count_able(except);
    if (able == 0) {
      turn_ = kNobody;
      for (const auto& thread : threads_) {
        if (!thread->over) return fail("all threads wait");
      }
      return;
    }
    std::size_t left = choices_.pick(able);
    for (turn_ = 0; turn_ == except || !is_able(*threads_[turn_]) || left-- > 0;) ++turn_;
    Thread& next = *threads_[turn_];
    if (next.waits_on != nullptr) {
      next.waits_on = nullptr;
      next.timed_out = true;
    }
    next.turn.notify_one();
  }

  void await_turn(std::unique_lock<std::mutex>& lock) {
    threads_[self_]->turn.wait(lock, [&] { return turn_ == self_ || !failure_.empty(); });
    if (!failure_.empty()) leave();
  }

  void fail(const char* what) {
    if (failure_.empty()) failure_ = what;
    for (auto& thread : threads_) thread->turn.notify_one();
  }

  // Unwinds, unless that is already under way.
  static void leave() {
    if (std::uncaught_exceptions() == 0) throw Abandoned{};
  }

  static inline thread_local Schedule* current_ = nullptr;
  static inline thread_local std::size_t self_ = 0;

  const std::unique_ptr<Choices> own_;
  Choices& choices_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::size_t turn_ = kNobody;
  std::int64_t steps_ = 0;
  std::string failure_;
};

// An atomic whose every access is a point of the schedule. Orders are taken as the strongest.
template <typename T>
class TestAtomic {
 public:
  TestAtomic() = default;
  TestAtomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  TestAtomic(const TestAtomic&) = delete;
  TestAtomic& operator=(const TestAtomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    Schedule::yield();
    return value_.load();
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    Schedule::yield();
    value_.store(value);
  }
  T fetch_add(T value, std::memory_order = std::memory_order_seq_cst) {
    Schedule::yield();
    return value_.fetch_add(value);
  }
  T fetch_sub(T value, std::memory_order = std::memory_order_seq_cst) {
    Schedule::yield();
    return value_.fetch_sub(value);
  }

 private:
  std::atomic<T> value_{};
};

struct ScheduledSync {
  class Mutex {
   public:
    void lock() {
      Schedule::yield();
      while (locked_) Schedule::block(this, false);
      locked_ = true;
    }
    void unlock() {
      locked_ = false;
      Schedule::unblock(this);
    }

   private:
    bool locked_ = false;
  };

  class Condition {
   public:
    std::cv_status wait_until(std::unique_lock<Mutex>& lock, Deadline deadline) {
      lock.mutex()->unlock();
      const bool woken = Schedule::block(this, deadline != Deadline::max());
      lock.mutex()->lock();
      return woken ? std::cv_status::no_timeout : std::cv_status::timeout;
    }
    void notify_all() {
      Schedule::yield();
      Schedule::unblock(this);
    }
  };
};

}  // namespace paceline::pipeline::testing
