// A stop in every state of a hand-off: noticed at once by every wait, final, and without a touch to
// the slots that are held.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "pipeline/host_pipeline.hpp"

namespace paceline::pipeline {
namespace {

using Pipe = HostPipeline<int>;
constexpr auto kConsumer = PipelineUserType::kConsumer;
constexpr std::uint32_t kStages = 2;

class HostPipelineStop : public ::testing::Test {
 protected:
  // Commits up to `count` items, numbered from 0.
  void produce(int count) {
    for (int i = 0; i < count; ++i) {
      const PipelineState state = pipe_.claim();
      ASSERT_EQ(pipe_.acquire(state, Deadline()), WaitResult::kReady);
      pipe_.slot(state) = static_cast<int>(state.count) + 100;
      pipe_.commit(state);
    }
  }
  // Takes `count` items and holds them.
  void take(int count) {
    for (int i = 0; i < count; ++i, ++consumer_) {
      ASSERT_EQ(pipe_.wait(consumer_, Deadline()), WaitResult::kReady);
      held_.push_back(consumer_);
    }
  }
  void wait_in_a_thread() {
    threads_.emplace_back([&] { note(pipe_.wait(consumer_)); });
  }
  void acquire_in_a_thread(Deadline deadline = Deadline::max()) {
    threads_.emplace_back([&, deadline] { note(pipe_.acquire(pipe_.claim(), deadline)); });
  }
  void note(WaitResult result) { (result == WaitResult::kStopped ? stopped_ : other_)++; }

  // Once all threads wait: stops, and every wait, under way or begun later, says so.
  void stop_and_check() {
    while (pipe_.stalls().size() < threads_.size()) std::this_thread::yield();
    const auto start = Clock::now();
    pipe_.stop();
    for (auto& thread : threads_) thread.join();
    EXPECT_LT(seconds_since(start), 1.0);
    EXPECT_EQ(stopped_.load(), static_cast<int>(threads_.size()));
    EXPECT_EQ(other_.load(), 0);
    EXPECT_TRUE(pipe_.stalls().empty());
    EXPECT_EQ(pipe_.wait(consumer_), WaitResult::kStopped);
    EXPECT_EQ(pipe_.acquire(pipe_.claim()), WaitResult::kStopped);
    for (const PipelineState& state : held_) {
      EXPECT_EQ(pipe_.slot(state), static_cast<int>(state.count) + 100) << "still the holder's";
      pipe_.release(state);
    }
    EXPECT_EQ(pipe_.acquire(pipe_.claim()), WaitResult::kStopped);
  }

  Pipe pipe_{"stop", kStages, [](std::uint32_t) { return 0; }};
  PipelineState consumer_ = make_pipeline_state(kConsumer, kStages);
  std::vector<PipelineState> held_;
  std::vector<std::thread> threads_;
  std::atomic<int> stopped_{0}, other_{0};
};

TEST_F(HostPipelineStop, Empty) { stop_and_check(); }

TEST_F(HostPipelineStop, EmptyWithTheConsumerWaiting) {
  wait_in_a_thread();
  stop_and_check();
}

TEST_F(HostPipelineStop, Full) {
  produce(2);
  stop_and_check();
}

TEST_F(HostPipelineStop, FullWithProducersWaiting) {
  produce(2);
  acquire_in_a_thread();
  acquire_in_a_thread(Clock::now() + std::chrono::seconds(60));
  acquire_in_a_thread();
  stop_and_check();
}

TEST_F(HostPipelineStop, AllSlotsHeldWithBothSidesWaiting) {
  produce(2);
  take(2);
  acquire_in_a_thread();
  wait_in_a_thread();
  stop_and_check();
}

TEST_F(HostPipelineStop, WithAnErrorNotYetDelivered) {
  produce(1);
  const PipelineState state = pipe_.claim();
  ASSERT_EQ(pipe_.acquire(state), WaitResult::kReady);
  pipe_.commit_error(state, Error(Code::kIo, "dropped"));
  stop_and_check();
}

TEST_F(HostPipelineStop, AfterTheEnd) {
  produce(1);
  take(1);
  const PipelineState state = pipe_.claim();
  ASSERT_EQ(pipe_.acquire(state), WaitResult::kReady);
  pipe_.commit_end(state);
  stop_and_check();
}

TEST_F(HostPipelineStop, BySeveralThreadsAtOnce) {
  wait_in_a_thread();
  while (pipe_.stalls().empty()) std::this_thread::yield();
  std::vector<std::thread> stoppers;
  for (int i = 0; i < 3; ++i) stoppers.emplace_back([&] { pipe_.stop(); });
  for (auto& thread : stoppers) thread.join();
  threads_.front().join();
  EXPECT_EQ(stopped_.load(), 1);
}

// A run under way: producers and the consumer leave within a second of a stop at any moment, and
// what was delivered until then was in order.
TEST_F(HostPipelineStop, InTheMiddleOfARun) {
  for (int round = 0; round < 10; ++round) {
    Pipe pipe("run", kStages, [](std::uint32_t) { return 0; });
    std::atomic<int> delivered{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        for (auto s = pipe.claim(); pipe.acquire(s) == WaitResult::kReady; s = pipe.claim()) {
          pipe.slot(s) = static_cast<int>(s.count);
          pipe.commit(s);
        }
      });
    }
    threads.emplace_back([&] {
      for (auto s = make_pipeline_state(kConsumer, kStages); pipe.wait(s) == WaitResult::kReady;
           ++s) {
        EXPECT_EQ(pipe.slot(s), static_cast<int>(s.count));
        pipe.release(s);
        delivered.fetch_add(1);
      }
    });
    while (delivered.load() < round * 20) std::this_thread::yield();
    const auto start = Clock::now();
    pipe.stop();
    for (auto& thread : threads) thread.join();
    EXPECT_LT(seconds_since(start), 1.0);
  }
}

}  // namespace
}  // namespace paceline::pipeline
