#include "pipeline/worker.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <new>
#include <optional>
#include <stdexcept>

#include "core/clock.hpp"
#include "pipeline/host_pipeline.hpp"

namespace paceline::pipeline {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Worker, HandsItsResultOver) {
  std::optional<Result<void>> seen;  // written before done, read after
  Worker worker(
      "good", [](const StopFlag&) -> Result<void> { return {}; },
      [&](Result<void> result) { seen.emplace(std::move(result)); });
  ASSERT_TRUE(worker.join_for(seconds(10)));
  EXPECT_TRUE(worker.done());
  ASSERT_TRUE(seen.has_value());
  EXPECT_TRUE(seen->ok());
  EXPECT_TRUE(worker.result().ok());
}

TEST(Worker, HandsItsErrorOver) {
  std::optional<Result<void>> seen;
  Worker worker(
      "bad",
      [](const StopFlag&) -> Result<void> { return Error(Code::kCorruptData, "row group 1"); },
      [&](Result<void> result) { seen.emplace(std::move(result)); });
  ASSERT_TRUE(worker.join_for(seconds(10)));
  ASSERT_FALSE(seen->ok());
  EXPECT_EQ(seen->error().code(), Code::kCorruptData);
  EXPECT_EQ(worker.result().error().message(), "row group 1");
}

TEST(Worker, ExceptionsBecomeErrors) {
  struct Odd {};
  const auto result_of = [](auto thrown) {
    Worker worker("reader 3", [thrown](const StopFlag&) -> Result<void> { throw thrown; });
    EXPECT_TRUE(worker.join_for(seconds(10)));
    return worker.result();
  };
  EXPECT_EQ(result_of(std::bad_alloc()).error().code(), Code::kOutOfMemory);
  EXPECT_EQ(result_of(std::bad_alloc()).error().message(), "reader 3: out of memory");
  const auto foreign = result_of(std::runtime_error("no such codec"));
  EXPECT_EQ(foreign.error().code(), Code::kInternal);
  EXPECT_EQ(foreign.error().message(), "reader 3: unexpected exception: no such codec");
  EXPECT_EQ(result_of(Odd()).error().code(), Code::kInternal);
}

TEST(Worker, HasAName) {
  std::string name(16, '\0');
  Worker worker("a name longer than fifteen", [&](const StopFlag&) -> Result<void> {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return {};
  });
  ASSERT_TRUE(worker.join_for(seconds(10)));
  EXPECT_STREQ(name.c_str(), "a name longer t");
  EXPECT_EQ(worker.name(), "a name longer than fifteen");
}

TEST(Worker, StopsOnRequest) {
  std::atomic<bool> started{false};
  Worker worker("loop", [&](const StopFlag& stop) -> Result<void> {
    started = true;
    while (!stop.requested()) std::this_thread::yield();
    return Error(Code::kCancelled, "stopped");
  });
  while (!started) std::this_thread::yield();
  EXPECT_FALSE(worker.join_for(milliseconds(5)));
  EXPECT_FALSE(worker.done());
  worker.request_stop();
  ASSERT_TRUE(worker.join_for(seconds(10)));
  EXPECT_EQ(worker.result().error().code(), Code::kCancelled);
}

TEST(Worker, TheDestructorStopsAndJoins) {
  std::atomic<bool> left{false};
  {
    Worker worker("loop", [&](const StopFlag& stop) -> Result<void> {
      while (!stop.requested()) std::this_thread::yield();
      left = true;
      return {};
    });
  }
  EXPECT_TRUE(left);
}

TEST(Worker, WhatTheBodyOwnsIsGoneWhenDone) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = owned;
  Worker worker(
      "owner", [owned](const StopFlag&) -> Result<void> { return {}; },
      [owned](const Result<void>&) {});
  owned.reset();
  ASSERT_TRUE(worker.join_for(seconds(10)));
  EXPECT_TRUE(seen.expired());
}

// A call that does not return is named and left behind; what it uses lives as long as it does.
TEST(Worker, LeavesABodyBehindThatDoesNotReturn) {
  struct Uses {
    std::atomic<bool> let_go{false};
    HostPipeline<int> pipe{"left", 1, [](std::uint32_t) { return 0; }};
  };
  auto uses = std::make_shared<Uses>();
  const std::weak_ptr<Uses> alive = uses;
  ::testing::internal::CaptureStderr();
  const auto start = Clock::now();
  {
    Worker worker(
        "stuck reader",
        [uses](const StopFlag&) -> Result<void> {
          while (!uses->let_go) std::this_thread::sleep_for(milliseconds(1));
          const auto state = uses->pipe.claim();
          EXPECT_EQ(uses->pipe.acquire(state), WaitResult::kReady);
          uses->pipe.commit(state);
          return {};
        },
        {}, milliseconds(30));
  }
  const double took = seconds_since(start);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GE(took, 0.03);
  EXPECT_LT(took, 5.0);
  EXPECT_NE(log.find("stuck reader did not return within 30 ms"), std::string::npos) << log;
  EXPECT_TRUE(any_left_behind());  // so that the program's end does not wait for its libraries
  uses->let_go = true;
  uses.reset();
  for (int i = 0; i < 5000 && !alive.expired(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace paceline::pipeline
