// The hand-off protocol between threads: producers fill slots, one consumer reads them in order.
//
// Guarantee
//   * The consumer gets item n after item n - 1, each exactly once, whoever produced it and in
//     whatever order producers committed.
//   * A slot is never overwritten before its release and never read before its commit.
//   * An error or the end is committed like an item, in its turn: every item before it is
//   delivered.
//   * stop() is seen by every wait at once; what was committed and not delivered is dropped.
// Mechanism
//   num_stages slots, each with a 64-bit turn that only grows. For lap L = count / num_stages of a
//   PipelineState the slot is free at turn 2 L, full at 2 L + 1; commit and release add one. The
//   phase bit that a device barrier would flip is the lowest bit of the lap, so a turn is a phase
//   that cannot be mistaken for that of another lap.
//   One producer steps its own state; several share claim(), which hands out the next item to fill.
// Limits
//   One consumer thread calls wait(). It may hold several slots and release them in any order, from
//   any thread. Every claimed item must be committed (item, error or end), or the pipeline stopped.
//   Nothing is allocated after construction but the text of an error.
// Shutdown
//   stop(), then join the threads that use the pipeline, then destroy it.
// Not for: several consumers, or items that may be dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/pipeline_state.hpp"
#include "pipeline/parking.hpp"
#include "pipeline/wait_stats.hpp"

namespace paceline::pipeline {

enum class WaitResult : std::uint8_t {
  kReady,    // the slot is yours: fill and commit it, or read and release it
  kTimeout,  // the deadline passed and nothing changed: wait again, or report a stall
  kStopped,  // stop() was called: leave without touching a slot
};

// What a full slot holds.
enum class Filled : std::uint8_t {
  kItem,   // read slot(state), then release
  kEnd,    // nothing comes after: release and stop waiting
  kError,  // take error(state), release and stop waiting
};

template <typename T, template <typename> class Atom = std::atomic, typename Parking = EventCount>
class HostPipeline {
 public:
  // `name` is for reports. make(i) builds the value of slot i, once.
  template <typename Make>
  HostPipeline(std::string name, std::uint32_t num_stages, Make&& make) : name_(std::move(name)) {
    PL_CHECK(num_stages >= 1, "a hand-off has at least one slot");
    slots_.reserve(num_stages);
    for (std::uint32_t i = 0; i < num_stages; ++i)
      slots_.push_back(std::make_unique<Slot>(make(i)));
  }

  const std::string& name() const { return name_; }
  std::uint32_t num_stages() const { return static_cast<std::uint32_t>(slots_.size()); }

  // The next item to produce. Any thread; does not block.
  PipelineState claim() {
    return make_pipeline_state(PipelineUserType::kProducer, num_stages(), claimed_.fetch_add(1));
  }

  // Producer: blocks until the slot is free.
  WaitResult acquire(const PipelineState& state, Deadline deadline = Deadline::max()) {
    return await(free_, producer_, acquire_wait_ns_, state, free_turn(state), deadline);
  }
  // Producer, after acquire: the slot is full. Do not block.
  void commit(const PipelineState& state) { fill(state, Filled::kItem); }
  void commit_end(const PipelineState& state) { fill(state, Filled::kEnd); }
  void commit_error(const PipelineState& state, Error error) {
    slot_at(state).error.emplace(std::move(error));
    fill(state, Filled::kError);
  }

  // Consumer: blocks until the slot is full.
  WaitResult wait(const PipelineState& state, Deadline deadline = Deadline::max()) {
    const std::int64_t full = full_.load(std::memory_order_relaxed);
    const WaitResult result =
        await(filled_, consumer_, consumer_wait_ns_, state, free_turn(state) + 1, deadline);
    if (result == WaitResult::kReady) {
      full_.fetch_sub(1, std::memory_order_relaxed);
      items_.fetch_add(1, std::memory_order_relaxed);
      occupancy_sum_.fetch_add(full, std::memory_order_relaxed);
    }
    return result;
  }
  // Consumer, after wait and before release.
  Filled filled(const PipelineState& state) const { return slots_[state.index]->filled; }
  Error take_error(const PipelineState& state) {
    Slot& slot = slot_at(state);
    PL_CHECK(slot.error.has_value(), "an error is taken once, from a slot that holds one");
    Error error = std::move(*slot.error);
    slot.error.reset();
    return error;
  }
  // Any thread that holds the full slot: the slot is free. Does not block.
  void release(const PipelineState& state) {
    Slot& slot = slot_at(state);
    PL_CHECK(slot.turn.load() == free_turn(state) + 1, "release of a slot that is full");
    slot.turn.store(free_turn(state) + 2);
    free_.notify();
  }

  // The slot's value, for whoever holds it.
  T& slot(const PipelineState& state) { return slot_at(state).value; }
  // By index, while no other thread uses the pipeline.
  T& slot(std::uint32_t index) { return slots_[index]->value; }

  void stop() {
    stopped_.store(true);
    free_.notify();
    filled_.notify();
  }
  bool stopped() const { return stopped_.load(); }

  WaitStats stats() const {
    WaitStats s;
    s.acquire_wait_ns = acquire_wait_ns_.load(std::memory_order_relaxed);
    s.consumer_wait_ns = consumer_wait_ns_.load(std::memory_order_relaxed);
    s.items = items_.load(std::memory_order_relaxed);
    s.occupancy_sum = occupancy_sum_.load(std::memory_order_relaxed);
    return s;
  }

  // Slots that are full and not yet waited for; approximate while others run.
  std::int64_t full_slots() const { return full_.load(std::memory_order_relaxed); }

  // "blocks: the consumer has waited 12.3 s for item 17"; empty when nobody waits.
  std::string stall_report() const {
    std::string text;
    const auto side = [&](const char* who, const char* what, const Waiting& w) {
      const std::int64_t since = w.since_ns.load(std::memory_order_relaxed);
      if (since == 0) return;
      const std::int64_t tenths = (now_ns() - since) / 100'000'000;
      text += (text.empty() ? "" : "; ") + name_ + ": " + who + " has waited " +
              std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s for " + what +
              " " + std::to_string(w.count.load(std::memory_order_relaxed));
    };
    side("the consumer", "item", consumer_);
    side("a producer", "a free slot for item", producer_);
    return text;
  }

 private:
  struct Slot {
    explicit Slot(T&& v) : value(std::move(v)) {}
    T value;
    Filled filled = Filled::kItem;
    std::optional<Error> error;
    alignas(kCacheLine) Atom<std::uint64_t> turn{0};
  };
  // Since when one side waits, 0 when it does not; of several producers, one.
  struct Waiting {
    std::atomic<std::int64_t> since_ns{0};
    std::atomic<std::uint64_t> count{0};
  };

  static std::uint64_t free_turn(const PipelineState& state) {
    return 2 * (state.count / state.num_stages);
  }
  Slot& slot_at(const PipelineState& state) { return *slots_[state.index]; }

  // Sequentially consistent, as Parking asks: pairs with the loads of `turn` in await().
  void fill(const PipelineState& state, Filled filled) {
    Slot& slot = slot_at(state);
    PL_CHECK(slot.turn.load() == free_turn(state), "commit of a slot that was acquired");
    slot.filled = filled;
    full_.fetch_add(1, std::memory_order_relaxed);
    slot.turn.store(free_turn(state) + 1);
    filled_.notify();
  }

  WaitResult await(Parking& parking, Waiting& waiting, std::atomic<std::int64_t>& wait_ns,
                   const PipelineState& state, std::uint64_t turn, Deadline deadline) {
    Slot& slot = slot_at(state);
    if (stopped_.load()) return WaitResult::kStopped;
    if (slot.turn.load() == turn) return WaitResult::kReady;
    const std::int64_t start = now_ns();
    waiting.count.store(state.count, std::memory_order_relaxed);
    waiting.since_ns.store(start, std::memory_order_relaxed);
    parking.await([&] { return stopped_.load() || slot.turn.load() == turn; }, deadline);
    waiting.since_ns.store(0, std::memory_order_relaxed);
    wait_ns.fetch_add(now_ns() - start, std::memory_order_relaxed);
    if (stopped_.load()) return WaitResult::kStopped;
    return slot.turn.load() == turn ? WaitResult::kReady : WaitResult::kTimeout;
  }

  std::string name_;
  std::vector<std::unique_ptr<Slot>> slots_;
  alignas(kCacheLine) Atom<std::uint64_t> claimed_{0};
  alignas(kCacheLine) Atom<bool> stopped_{false};
  Parking free_, filled_;
  Waiting producer_, consumer_;
  // Accounts only: nothing is ordered by them.
  std::atomic<std::int64_t> acquire_wait_ns_{0}, consumer_wait_ns_{0}, items_{0}, occupancy_sum_{0},
      full_{0};
};

}  // namespace paceline::pipeline
