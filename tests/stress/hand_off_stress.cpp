#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <thread>

#include "pipeline/testing/scenario.hpp"
#include "stress.hpp"

namespace paceline {
namespace {

TEST(HandOffStress, KeepsItsPromisesUnderAnySchedule) {
  using pipeline::testing::Fault;
  std::uint64_t tried = 0;
  EXPECT_EQ(stress::search("hand_off_schedule", tried,
                           [](std::uint64_t seed) {
                             return pipeline::testing::Scenario<Fault::kNone>(seed).run();
                           }),
            "");
  std::printf("%llu schedules\n", static_cast<unsigned long long>(tried));
}

// Real threads with real atomics; the thread sanitizer's lane looks at the memory orders.
std::string real_threads(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto stages = static_cast<std::uint32_t>(1 + random() % 4);
  const int producers = static_cast<int>(1 + random() % 4);
  const std::uint64_t items = random() % 2000;
  const std::size_t held = random() % stages;
  pipeline::HostPipeline<std::uint64_t> pipe("stress", stages,
                                             [](std::uint32_t) { return std::uint64_t{0}; });
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p) {
    threads.emplace_back([&, pause = random() % 64] {
      for (auto s = pipe.claim(); s.count <= items; s = pipe.claim()) {
        if (pipe.acquire(s) != pipeline::WaitResult::kReady) return;
        if (s.count % 64 == pause) std::this_thread::yield();
        if (s.count == items) return pipe.commit_end(s);
        pipe.slot(s) = s.count + seed;
        pipe.commit(s);
      }
    });
  }
  std::string wrong;
  std::vector<PipelineState> out;
  for (auto s = make_pipeline_state(PipelineUserType::kConsumer, stages);; ++s) {
    if (pipe.wait(s) != pipeline::WaitResult::kReady) {
      wrong = "stopped by nobody";
      break;
    }
    if (pipe.filled(s) == pipeline::Filled::kEnd) {
      if (s.count != items) wrong = "the end came at item " + std::to_string(s.count);
      break;
    }
    if (pipe.slot(s) != s.count + seed) wrong = "another item " + std::to_string(s.count);
    out.push_back(s);
    if (out.size() > held) {
      pipe.release(out.front());
      out.erase(out.begin());
    }
  }
  pipe.stop();
  for (auto& t : threads) t.join();
  return wrong;
}

TEST(HandOffStress, KeepsItsPromisesBetweenRealThreads) {
  std::uint64_t tried = 0;
  EXPECT_EQ(stress::search("hand_off_threads", tried, real_threads), "");
  std::printf("%llu runs\n", static_cast<unsigned long long>(tried));
}

}  // namespace
}  // namespace paceline
