#include "pipeline/host_pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>

namespace paceline::pipeline {
namespace {

using std::chrono::milliseconds;
using Pipe = HostPipeline<std::vector<std::uint64_t>>;

constexpr auto kProducer = PipelineUserType::kProducer;
constexpr auto kConsumer = PipelineUserType::kConsumer;

// Values that take some writing, and a place for four words each.
std::unique_ptr<Pipe> make_pipe(std::uint32_t stages) {
  return std::make_unique<Pipe>("blocks", stages,
                                [](std::uint32_t) { return std::vector<std::uint64_t>(4); });
}

void fill(std::vector<std::uint64_t>& value, std::uint64_t item) {
  std::iota(value.begin(), value.end(), 4 * item);
}
bool holds(const std::vector<std::uint64_t>& value, std::uint64_t item) {
  for (std::uint64_t i = 0; i < value.size(); ++i) {
    if (value[i] != 4 * item + i) return false;
  }
  return true;
}

Deadline soon(int ms = 20) { return Clock::now() + milliseconds(ms); }

TEST(HostPipeline, AProducerPassesOncePerSlotThenWaits) {
  const auto pipe = make_pipe(3);
  auto state = make_pipeline_state(kProducer, 3);
  for (int i = 0; i < 3; ++i, ++state) {
    ASSERT_EQ(pipe->acquire(state), WaitResult::kReady);
    pipe->commit(state);
  }
  EXPECT_EQ(pipe->acquire(state, soon()), WaitResult::kTimeout);
  EXPECT_EQ(pipe->full_slots(), 3);
  const auto first = make_pipeline_state(kConsumer, 3);
  ASSERT_EQ(pipe->wait(first), WaitResult::kReady);
  EXPECT_EQ(pipe->acquire(state, soon()), WaitResult::kTimeout);
  pipe->release(first);
  EXPECT_EQ(pipe->acquire(state, soon()), WaitResult::kReady);
}

TEST(HostPipeline, AConsumerWaitsForTheFirstFill) {
  const auto pipe = make_pipe(2);
  const auto state = make_pipeline_state(kConsumer, 2);
  EXPECT_EQ(pipe->wait(state, soon()), WaitResult::kTimeout);
  EXPECT_EQ(pipe->wait(state, Deadline()), WaitResult::kTimeout) << "a look, no wait";
  const auto producer = pipe->claim();
  EXPECT_EQ(pipe->acquire(producer, Deadline()), WaitResult::kReady);
  pipe->commit(producer);
  EXPECT_EQ(pipe->wait(state, Deadline()), WaitResult::kReady);
}

TEST(HostPipeline, OrderIsByItemNotByCommit) {
  const auto pipe = make_pipe(3);
  const PipelineState states[] = {pipe->claim(), pipe->claim(), pipe->claim()};
  auto consumer = make_pipeline_state(kConsumer, 3);
  for (const int i : {2, 1}) {
    ASSERT_EQ(pipe->acquire(states[i]), WaitResult::kReady);
    fill(pipe->slot(states[i]), static_cast<std::uint64_t>(i));
    pipe->commit(states[i]);
    EXPECT_EQ(pipe->wait(consumer, soon(1)), WaitResult::kTimeout);
  }
  ASSERT_EQ(pipe->acquire(states[0]), WaitResult::kReady);
  fill(pipe->slot(states[0]), 0);
  pipe->commit(states[0]);
  for (std::uint64_t item = 0; item < 3; ++item, ++consumer) {
    ASSERT_EQ(pipe->wait(consumer), WaitResult::kReady);
    EXPECT_TRUE(holds(pipe->slot(consumer), item));
    pipe->release(consumer);
  }
}

TEST(HostPipeline, SlotsAreReleasedInAnyOrder) {
  const auto pipe = make_pipe(3);
  auto producer = make_pipeline_state(kProducer, 3);
  auto consumer = make_pipeline_state(kConsumer, 3);
  std::vector<PipelineState> held;
  for (int i = 0; i < 3; ++i, ++producer, ++consumer) {
    ASSERT_EQ(pipe->acquire(producer), WaitResult::kReady);
    pipe->commit(producer);
    ASSERT_EQ(pipe->wait(consumer), WaitResult::kReady);
    held.push_back(consumer);
  }
  pipe->release(held[2]);
  pipe->release(held[1]);
  EXPECT_EQ(pipe->acquire(producer, soon()), WaitResult::kTimeout) << "slot 0 is still held";
  pipe->release(held[0]);
  for (int i = 0; i < 3; ++i, ++producer) {
    EXPECT_EQ(pipe->acquire(producer, soon()), WaitResult::kReady);
    pipe->commit(producer);
  }
}

TEST(HostPipeline, ManyProducersOneConsumerWithoutLoss) {
  constexpr std::uint64_t kItems = 2'000;
  for (const int producers : {1, 2, 4}) {
    for (const std::uint32_t stages : {1U, 2U, 5U}) {
      const auto pipe = make_pipe(stages);
      std::vector<std::thread> threads;
      for (int i = 0; i < producers; ++i) {
        threads.emplace_back([&] {
          for (auto s = pipe->claim(); s.count <= kItems; s = pipe->claim()) {
            if (pipe->acquire(s) != WaitResult::kReady) return;
            fill(pipe->slot(s), s.count);
            s.count == kItems ? pipe->commit_end(s) : pipe->commit(s);
          }
        });
      }
      auto state = make_pipeline_state(kConsumer, stages);
      while (pipe->wait(state) == WaitResult::kReady && pipe->filled(state) == Filled::kItem) {
        ASSERT_TRUE(holds(pipe->slot(state), state.count)) << state.count;
        pipe->release(state);
        ++state;
      }
      EXPECT_EQ(state.count, kItems);
      EXPECT_EQ(pipe->filled(state), Filled::kEnd);
      for (auto& thread : threads) thread.join();
      EXPECT_EQ(pipe->stats().items, static_cast<std::int64_t>(kItems));
      EXPECT_LE(pipe->stats().mean_occupancy(), static_cast<double>(stages));
    }
  }
}

TEST(HostPipeline, AnotherThreadMayRelease) {
  constexpr std::uint64_t kItems = 2'000;
  constexpr std::uint32_t kStages = 4;
  const auto pipe = make_pipe(kStages);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<PipelineState> taken;
  std::thread producer([&] {
    auto s = make_pipeline_state(kProducer, kStages);
    for (; s.count < kItems; ++s) {
      if (pipe->acquire(s) != WaitResult::kReady) return;
      fill(pipe->slot(s), s.count);
      pipe->commit(s);
    }
  });
  std::thread releaser([&] {
    for (std::uint64_t n = 0; n < kItems; ++n) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !taken.empty(); });
      const auto s = n % 2 == 0 ? taken.back() : taken.front();
      n % 2 == 0 ? taken.pop_back() : taken.pop_front();
      lock.unlock();
      EXPECT_TRUE(holds(pipe->slot(s), s.count));
      pipe->release(s);
    }
  });
  auto s = make_pipeline_state(kConsumer, kStages);
  for (; s.count < kItems; ++s) {
    ASSERT_EQ(pipe->wait(s), WaitResult::kReady);
    const std::lock_guard lock(mutex);
    taken.push_back(s);
    changed.notify_one();
  }
  producer.join();
  releaser.join();
}

TEST(HostPipeline, AnErrorComesAfterTheItemsBeforeIt) {
  const auto pipe = make_pipe(3);
  const PipelineState states[] = {pipe->claim(), pipe->claim(), pipe->claim()};
  for (const auto& state : states) ASSERT_EQ(pipe->acquire(state), WaitResult::kReady);
  pipe->commit_error(states[2], Error(Code::kCorruptData, "b.parquet: row group 1"));
  pipe->commit(states[1]);
  pipe->commit(states[0]);
  auto consumer = make_pipeline_state(kConsumer, 3);
  for (int i = 0; i < 2; ++i, ++consumer) {
    ASSERT_EQ(pipe->wait(consumer), WaitResult::kReady);
    EXPECT_EQ(pipe->filled(consumer), Filled::kItem);
    pipe->release(consumer);
  }
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(pipe->wait(consumer), WaitResult::kReady);
    ASSERT_EQ(pipe->filled(consumer), Filled::kError);
  }
  const Error error = pipe->take_error(consumer);
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_EQ(error.message(), "b.parquet: row group 1");
  EXPECT_EQ(pipe->stats().items, 2) << "an error is no item";
  EXPECT_EQ(pipe->full_slots(), 0);

  // The consumer may go on.
  pipe->release(consumer);
  ++consumer;
  const auto next = pipe->claim();
  ASSERT_EQ(pipe->acquire(next), WaitResult::kReady);
  pipe->commit(next);
  EXPECT_EQ(pipe->wait(consumer), WaitResult::kReady);
  EXPECT_EQ(pipe->filled(consumer), Filled::kItem);
}

TEST(HostPipeline, StopWakesBothSidesAndIsFinal) {
  const auto pipe = make_pipe(1);
  const auto producer = pipe->claim();
  ASSERT_EQ(pipe->acquire(producer), WaitResult::kReady);
  std::thread consumer(
      [&] { EXPECT_EQ(pipe->wait(make_pipeline_state(kConsumer, 1)), WaitResult::kStopped); });
  std::thread other([&] { EXPECT_EQ(pipe->acquire(pipe->claim()), WaitResult::kStopped); });
  while (pipe->stalls().size() < 2) std::this_thread::yield();
  const auto start = Clock::now();
  pipe->stop();
  consumer.join();
  other.join();
  EXPECT_LT(seconds_since(start), 1.0);
  // Allowed, and delivers nothing any more.
  pipe->commit(producer);
  EXPECT_EQ(pipe->wait(make_pipeline_state(kConsumer, 1)), WaitResult::kStopped);
  EXPECT_EQ(pipe->acquire(pipe->claim()), WaitResult::kStopped);
  EXPECT_TRUE(pipe->stopped());
  pipe->stop();
}

TEST(HostPipeline, CountsItsWaits) {
  const auto pipe = make_pipe(2);
  auto producer = make_pipeline_state(kProducer, 2);
  auto consumer = make_pipeline_state(kConsumer, 2);
  EXPECT_EQ(pipe->wait(consumer, soon(10)), WaitResult::kTimeout);
  const std::int64_t waited = pipe->stats().consumer_wait_ns;
  EXPECT_GE(waited, 9'000'000);
  EXPECT_EQ(pipe->stats().acquire_wait_ns, 0);
  for (int i = 0; i < 2; ++i, ++producer) {
    ASSERT_EQ(pipe->acquire(producer), WaitResult::kReady);
    pipe->commit(producer);
  }
  EXPECT_EQ(pipe->acquire(producer, soon(10)), WaitResult::kTimeout);
  EXPECT_GE(pipe->stats().acquire_wait_ns, 9'000'000);
  for (int i = 0; i < 2; ++i, ++consumer) ASSERT_EQ(pipe->wait(consumer), WaitResult::kReady);
  const WaitStats stats = pipe->stats();
  EXPECT_EQ(stats.consumer_wait_ns, waited) << "a full slot costs no wait";
  EXPECT_EQ(stats.items, 2);
  EXPECT_EQ(stats.occupancy_sum, 2 + 1);
  EXPECT_EQ(stats.mean_occupancy(), 1.5);
}

TEST(HostPipeline, ReportsAWaitUnderWay) {
  const auto pipe = make_pipe(2);
  EXPECT_EQ(pipe->stall_report(), "");
  std::thread consumer(
      [&] { EXPECT_EQ(pipe->wait(make_pipeline_state(kConsumer, 2)), WaitResult::kStopped); });
  while (pipe->stalls().empty()) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_THAT(pipe->stall_report(),
              ::testing::MatchesRegex("blocks: the consumer has waited [0-9.]+ s for item 0"));
  EXPECT_GE(pipe->stats().consumer_wait_ns, 5'000'000) << "waits under way count";
  pipe->stop();
  consumer.join();
  EXPECT_EQ(pipe->stall_report(), "");
}

TEST(StallText, NamesTheLongestWaitFirst) {
  EXPECT_EQ(stall_text("batches",
                       {{kProducer, 20, 1'000'000'000, 3}, {kConsumer, 17, 12'340'000'000, 3}}),
            "batches: the consumer has waited 12.3 s for item 17; a producer has waited 1.0 s for "
            "slot 2 (item 20)");
}

TEST(HostPipeline, ValuesAreMadeOncePerSlot) {
  int made = 0;
  HostPipeline<std::unique_ptr<int>> pipe("made", 3, [&](std::uint32_t i) {
    ++made;
    return std::make_unique<int>(static_cast<int>(i));
  });
  EXPECT_EQ(made, 3);
  const int* const first = pipe.slot(0U).get();
  auto producer = make_pipeline_state(kProducer, 3);
  auto consumer = make_pipeline_state(kConsumer, 3);
  for (int i = 0; i < 7; ++i, ++producer, ++consumer) {
    ASSERT_EQ(pipe.acquire(producer), WaitResult::kReady);
    EXPECT_EQ(*pipe.slot(producer), i % 3);
    pipe.commit(producer);
    ASSERT_EQ(pipe.wait(consumer), WaitResult::kReady);
    pipe.release(consumer);
  }
  EXPECT_EQ(pipe.slot(0U).get(), first);
}

TEST(HostPipelineDeathTest, MisuseIsABug) {
  const auto pipe = make_pipe(1);
  const auto state = pipe->claim();
  const auto consumer = make_pipeline_state(kConsumer, 1);
  EXPECT_DEATH(pipe->release(consumer), "released once, after its wait");
  ASSERT_EQ(pipe->acquire(state), WaitResult::kReady);
  pipe->commit(state);
  EXPECT_DEATH(pipe->commit(state), "committed once, after its acquire");
  EXPECT_DEATH(pipe->slot(make_pipeline_state(kConsumer, 2)), "a state of this hand-off");
}

}  // namespace
}  // namespace paceline::pipeline
