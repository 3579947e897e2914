// One random run of HostPipeline under a seeded schedule, whole or with a verb broken on purpose:
// for searches that must find nothing, and for showing that they would find something. Tests only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pipeline/host_pipeline.hpp"
#include "pipeline/testing/schedule.hpp"

namespace paceline::pipeline::testing {

enum class Fault {
  kNone,
  kAcquireAtOnce,     // acquire does not wait for the slot
  kWaitAtOnce,        // wait does not wait for the slot
  kCommitEarly,       // commit takes effect before the slot is filled
  kReleaseEarly,      // release takes effect before the slot is read
  kCommitSilent,      // commit wakes nobody
  kReleaseSilent,     // release wakes nobody
  kStopSilent,        // stop wakes nobody
  kLookThenAnnounce,  // a waiter looks before it announces itself
};

enum class Role { kNone, kProducer, kConsumer, kStopper };
inline thread_local Role role = Role::kNone;

template <Fault fault>
class FaultyEventCount {
 public:
  template <typename Ready>
  bool await(Ready&& ready, Deadline deadline) {
    if (fault == Fault::kAcquireAtOnce && role == Role::kProducer) return true;
    if (fault == Fault::kWaitAtOnce && role == Role::kConsumer) return true;
    if constexpr (fault == Fault::kLookThenAnnounce) {
      if (ready()) return true;
      return inner_.await([looks = 0, &ready]() mutable { return looks++ > 0 && ready(); },
                          deadline);
    }
    return inner_.await(ready, deadline);
  }
  void notify() {
    if (fault == Fault::kCommitSilent && role == Role::kProducer) return;
    if (fault == Fault::kReleaseSilent && role == Role::kConsumer) return;
    if (fault == Fault::kStopSilent && role == Role::kStopper) return;
    inner_.notify();
  }

 private:
  BasicEventCount<TestAtomic, ScheduledSync> inner_;
};

// A value that takes two steps to write and to read.
struct Cell {
  TestAtomic<std::uint64_t> first, second;
};

enum class Ending { kEnd, kError, kStop };

template <Fault fault>
class Scenario {
 public:
  explicit Scenario(std::uint64_t seed) : random_(seed), schedule_(seed) {
    stages_ = static_cast<std::uint32_t>(1 + random_() % 3);
    producers_ = static_cast<int>(1 + random_() % 3);
    items_ = random_() % 7;
    held_ = random_() % stages_;
    ending_ = static_cast<Ending>(random_() % 3);
    producer_deadline_ = some_deadline();
    consumer_deadline_ = some_deadline();
    pipeline_.emplace("test", stages_, [](std::uint32_t) { return Cell(); });
  }

  // Empty, or what went wrong.
  std::string run() {
    for (int i = 0; i < producers_; ++i) schedule_.spawn([this] { produce(); });
    schedule_.spawn([this] { consume(); });
    if (ending_ == Ending::kStop) schedule_.spawn([this] { stop(); });
    const std::string stuck = schedule_.run();
    if (!wrong_.empty()) return wrong_;
    if (!stuck.empty()) return stuck;
    if (ending_ != Ending::kStop && delivered_ != items_) {
      return fmt::format("{} of {} items", delivered_, items_);
    }
    const WaitStats stats = pipeline_->stats();
    if (static_cast<std::uint64_t>(stats.items) != delivered_) return "accounts of another count";
    if (ending_ != Ending::kStop && pipeline_->full_slots() != 0) return "accounts of full slots";
    return pipeline_->stalls().empty() ? "" : "a wait that never ends in the accounts";
  }

 private:
  Deadline some_deadline() { return random_() % 3 == 0 ? Deadline() : Deadline::max(); }

  void produce() {
    role = Role::kProducer;
    while (true) {
      const PipelineState state = pipeline_->claim();
      if (ending_ != Ending::kStop && state.count > items_) return;
      WaitResult result = WaitResult::kTimeout;
      while (result == WaitResult::kTimeout) result = pipeline_->acquire(state, producer_deadline_);
      if (result == WaitResult::kStopped) return;
      if (ending_ == Ending::kEnd && state.count == items_) return pipeline_->commit_end(state);
      if (ending_ == Ending::kError && state.count == items_) {
        return pipeline_->commit_error(state, Error(Code::kCorruptData, "bad block"));
      }
      if (fault == Fault::kCommitEarly) pipeline_->commit(state);
      pipeline_->slot(state).first.store(state.count + 1);
      pipeline_->slot(state).second.store(state.count + 1);
      if (fault != Fault::kCommitEarly) pipeline_->commit(state);
    }
  }

  void consume() {
    role = Role::kConsumer;
    std::vector<PipelineState> held;
    auto state = make_pipeline_state(PipelineUserType::kConsumer, stages_);
    while (wrong_.empty()) {
      WaitResult result = WaitResult::kTimeout;
      while (result == WaitResult::kTimeout) result = pipeline_->wait(state, consumer_deadline_);
      if (result == WaitResult::kStopped) {
        if (ending_ != Ending::kStop) wrong_ = "stopped by nobody";
        return;
      }
      if (pipeline_->filled(state) != Filled::kItem) return finish(state);
      if (fault == Fault::kReleaseEarly) pipeline_->release(state);
      check(state);
      ++delivered_;
      held.push_back(state);
      ++state;
      if (held.size() <= held_) continue;
      // In any order, but the slot of the next item must be free.
      const bool next_needs_oldest = held.front().count + stages_ == state.count;
      const auto pick = next_needs_oldest ? 0 : random_() % held.size();
      const auto any = held.begin() + static_cast<std::ptrdiff_t>(pick);
      check(*any);
      if (fault != Fault::kReleaseEarly) pipeline_->release(*any);
      held.erase(any);
    }
  }

  void check(const PipelineState& state) {
    const std::uint64_t first = pipeline_->slot(state).first.load();
    const std::uint64_t second = pipeline_->slot(state).second.load();
    if (first != state.count + 1 || second != state.count + 1) {
      wrong_ = fmt::format("item {} read as {}, {}", state.count, first, second);
    }
  }

  void finish(const PipelineState& state) {
    const bool is_end = pipeline_->filled(state) == Filled::kEnd;
    if (is_end != (ending_ == Ending::kEnd)) wrong_ = "another ending";
    // The ending stays where it is.
    if (pipeline_->wait(state) != WaitResult::kReady) wrong_ = "the ending went away";
    if (!is_end && pipeline_->take_error(state).message() != "bad block") wrong_ = "another error";
  }

  void stop() {
    role = Role::kStopper;
    for (std::uint64_t i = items_ * 20; i > 0; --i) Schedule::yield();
    pipeline_->stop();
  }

  std::mt19937_64 random_;
  Schedule schedule_;
  std::uint32_t stages_ = 1;
  int producers_ = 1;
  std::uint64_t items_ = 0;
  std::size_t held_ = 0;
  Ending ending_ = Ending::kEnd;
  Deadline producer_deadline_, consumer_deadline_;
  std::optional<HostPipeline<Cell, TestAtomic, FaultyEventCount<fault>>> pipeline_;
  std::uint64_t delivered_ = 0;
  std::string wrong_;
};

// The first seed in [from, from + count) that fails, as text; empty when none does.
template <Fault fault>
std::string search(std::uint64_t from, std::uint64_t count) {
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    const std::string wrong = Scenario<fault>(seed).run();
    if (!wrong.empty()) return fmt::format("PL_TEST_SEED={}: {}", seed, wrong);
  }
  return "";
}

}  // namespace paceline::pipeline::testing
