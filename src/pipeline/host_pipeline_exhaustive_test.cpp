// HostPipeline under every schedule of a tiny run with a bounded number of interruptions; few are
// enough to show most errors (Musuvathi and Qadeer, PLDI 2007).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "pipeline/host_pipeline.hpp"
#include "pipeline/testing/schedule.hpp"

namespace paceline::pipeline {
namespace {

using testing::EveryChoice;
using testing::Schedule;
using testing::ScheduledSync;
using testing::TestAtomic;

using GoodEvents = BasicEventCount<TestAtomic, ScheduledSync>;

// A waiter looks before it announces itself: a wake-up can be lost.
class LateEvents {
 public:
  template <typename Ready>
  bool await(Ready&& ready, Deadline deadline) {
    if (ready()) return true;
    bool first = true;  // that look counts; the next one is after a sleep
    return inner_.await([&] { return !std::exchange(first, false) && ready(); }, deadline);
  }
  void notify() { inner_.notify(); }

 private:
  GoodEvents inner_;
};

struct Size {
  std::uint32_t stages;
  int producers;
  std::uint64_t items;
  bool stops;  // a third party stops the run, or the end is committed
};

// One run; empty, or what went wrong.
template <typename Events>
std::string run_once(testing::Choices& choices, const Size& size) {
  using Pipe = HostPipeline<TestAtomic<std::uint64_t>, TestAtomic, Events>;
  Pipe pipe("tiny", size.stages, [](std::uint32_t) { return std::uint64_t{0}; });
  Schedule schedule(choices);
  std::uint64_t delivered = 0;
  std::string wrong;
  for (int i = 0; i < size.producers; ++i) {
    schedule.spawn([&] {
      for (auto s = pipe.claim(); s.count <= size.items; s = pipe.claim()) {
        if (pipe.acquire(s) != WaitResult::kReady) return;
        if (s.count == size.items) return pipe.commit_end(s);
        pipe.slot(s).store(s.count + 1);
        pipe.commit(s);
      }
    });
  }
  schedule.spawn([&] {
    auto s = make_pipeline_state(PipelineUserType::kConsumer, size.stages);
    for (; pipe.wait(s) == WaitResult::kReady && pipe.filled(s) == Filled::kItem; ++s) {
      const std::uint64_t value = pipe.slot(s).load();
      if (value != s.count + 1) wrong = fmt::format("item {} read as {}", s.count, value);
      ++delivered;
      pipe.release(s);
    }
  });
  if (size.stops) schedule.spawn([&] { pipe.stop(); });
  const std::string stuck = schedule.run();
  if (!wrong.empty()) return wrong;
  if (!stuck.empty()) return stuck;
  if (size.stops ? delivered > size.items : delivered != size.items) {
    return fmt::format("{} of {} items", delivered, size.items);
  }
  return "";
}

struct Outcome {
  std::string wrong;  // the first failure, with its schedule
  int runs = 0;
};

template <typename Events>
Outcome try_all(const Size& size, int interruptions) {
  Outcome outcome;
  EveryChoice choices(interruptions);
  do {
    ++outcome.runs;
    const std::string wrong = run_once<Events>(choices, size);
    if (!wrong.empty()) {
      outcome.wrong = fmt::format("{} by the choices {}", wrong, choices.text());
      return outcome;
    }
  } while (choices.next());
  return outcome;
}

TEST(EveryChoice, VisitsEachPathOnce) {
  EveryChoice choices(1);
  std::vector<std::string> seen;
  do {
    std::string path = std::to_string(choices.pick(2));
    if (path == "1") path += std::to_string(choices.pick(3));
    path += choices.interrupts() ? "i" : "-";
    path += choices.interrupts() ? "i" : "-";  // only one is allowed
    seen.push_back(path);
  } while (choices.next());
  const std::vector<std::string> all = {"0--",  "0-i",  "0i-",  "10--", "10-i", "10i-",
                                        "11--", "11-i", "11i-", "12--", "12-i", "12i-"};
  EXPECT_EQ(seen, all);
}

TEST(HostPipelineExhaustive, OneProducer) {
  for (const std::uint32_t stages : {1U, 2U}) {
    const Outcome outcome = try_all<GoodEvents>({stages, 1, 2, false}, 2);
    EXPECT_EQ(outcome.wrong, "") << stages << " slots";
    EXPECT_GT(outcome.runs, 300);
  }
}

TEST(HostPipelineExhaustive, TwoProducers) {
  const Outcome outcome = try_all<GoodEvents>({1, 2, 2, false}, 1);
  EXPECT_EQ(outcome.wrong, "");
  EXPECT_GT(outcome.runs, 300);
}

TEST(HostPipelineExhaustive, AStopAtAnyPoint) {
  const Outcome outcome = try_all<GoodEvents>({1, 1, 2, true}, 1);
  EXPECT_EQ(outcome.wrong, "");
  EXPECT_GT(outcome.runs, 300);
}

TEST(HostPipelineExhaustive, FindsALostWakeUp) {
  const Outcome outcome = try_all<LateEvents>({1, 1, 2, false}, 2);
  EXPECT_NE(outcome.wrong.find("all threads wait"), std::string::npos) << outcome.runs << " runs";
}

}  // namespace
}  // namespace paceline::pipeline
