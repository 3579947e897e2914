#include "pipeline/parking.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace paceline::pipeline {
namespace {

using std::chrono::milliseconds;

TEST(EventCount, WhatHoldsNeedsNoWait) {
  EventCount events;
  int looks = 0;
  const auto ready = [&] { return ++looks > 0; };
  EXPECT_TRUE(events.await(ready, Deadline::max()));
  EXPECT_TRUE(events.await(ready, Deadline())) << "also after the deadline";
  EXPECT_EQ(looks, 2);
}

TEST(EventCount, GivesUpAtTheDeadlineNotBefore) {
  EventCount events;
  const auto start = Clock::now();
  EXPECT_FALSE(events.await([] { return false; }, start + milliseconds(20)));
  EXPECT_GE(Clock::now(), start + milliseconds(20));
  EXPECT_FALSE(events.await([] { return false; }, Deadline())) << "a deadline long past";
}

TEST(EventCount, LooksOnceMoreAtTheDeadline) {
  EventCount events;
  int looks = 0;
  EXPECT_TRUE(events.await([&] { return ++looks == 2; }, Clock::now() + milliseconds(5)))
      << "a change that nobody told of is found at the end";
}

TEST(EventCount, WakesAllWaiters) {
  EventCount events;
  std::atomic<bool> open{false};
  std::atomic<int> looking{0}, through{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      bool first = true;
      const auto ready = [&] {
        if (first) looking.fetch_add(1);
        first = false;
        return open.load();
      };
      if (events.await(ready, Deadline::max())) through.fetch_add(1);
    });
  }
  while (looking.load() < 3) std::this_thread::yield();
  EXPECT_EQ(through.load(), 0);
  events.notify();  // nothing changed: they sleep on
  open.store(true);
  events.notify();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(through.load(), 3);
}

// Two threads that each wait for the other's every step: one lost wake-up and neither goes on.
TEST(EventCount, LosesNoWakeUp) {
  EventCount events;
  std::atomic<int> ball{0};
  constexpr int kSteps = 4'000;
  const auto play = [&](int side) {
    for (int step = side; step < kSteps; step += 2) {
      EXPECT_TRUE(events.await([&] { return ball.load() == step; },
                               Clock::now() + std::chrono::seconds(30)));
      ball.store(step + 1);
      events.notify();
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(ball.load(), kSteps);
}

}  // namespace
}  // namespace paceline::pipeline
