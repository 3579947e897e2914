// The hand-off protocol between threads: producers fill slots, one consumer reads them in order.
//
//   producer                                    consumer
//   s = p.claim();                              s = make_pipeline_state(kConsumer, stages);
//   if (p.acquire(s) != kReady) return;         if (p.wait(s) != kReady) return;
//   fill(p.slot(s));                            if (p.filled(s) == kItem) use(p.slot(s));
//   p.commit(s);                                p.release(s); ++s;
//
// Guarantee
//   * The consumer gets item n after item n - 1, each exactly once, whoever produced it and in
//     whatever order producers committed.
//   * A slot is never overwritten before its release and never read before its commit; what was
//     written before commit is seen after wait.
//   * An error or the end is committed like an item, in its turn: every item before it is
//     delivered.
//   * stop() is seen by every wait at once; what was committed and not delivered is dropped.
// Mechanism
//   num_stages slots, each with a 64-bit turn that only grows. For lap L = count / num_stages of a
//   PipelineState the slot is free at turn 2 L, full at 2 L + 1; commit and release add one. The
//   phase bit that a device barrier would flip is the lowest bit of the lap (the consumer's phase;
//   the producer's is its opposite), so a turn is a phase that cannot be mistaken for that of
//   another lap. Blocked threads sleep in one event count per side.
//   One producer steps its own state; several share claim(), which hands out the next item to fill.
// Limits
//   One consumer thread calls wait(). It may hold several slots and release them in any order, from
//   any thread; slots are reused in order, so item n needs the slot of item n - num_stages back.
//   Every claimed item must be committed (item, error or end), or the pipeline stopped.
//   Nothing is allocated after construction but the text of an error.
// Shutdown
//   stop(), then join the threads that use the pipeline, then destroy it. A thread that may be left
//   behind holds the pipeline by shared_ptr.
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
#include "pipeline/wait_ledger.hpp"
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
  kEnd,    // nothing comes after: stop waiting; a wait for the same place says so again
  kError,  // take_error(state), then stop waiting; or release and go on with the next item
};

template <typename T, template <typename> class Atom = std::atomic, typename Parking = EventCount>
class HostPipeline {
 public:
  // `name` is for reports. make(i) builds the value of slot i, once.
  template <typename Make>
  HostPipeline(std::string name, std::uint32_t num_stages, Make&& make) : name_(std::move(name)) {
    PL_CHECK(num_stages >= 1, "a hand-off has at least one slot");
    slots_.reserve(num_stages);
    for (std::uint32_t i = 0; i < num_stages; ++i) {
      slots_.push_back(std::make_unique<Slot>(make, i));
    }
  }
  HostPipeline(const HostPipeline&) = delete;
  HostPipeline& operator=(const HostPipeline&) = delete;

  const std::string& name() const { return name_; }
  std::uint32_t num_stages() const { return static_cast<std::uint32_t>(slots_.size()); }

  // The next item to produce. Any thread; does not block.
  PipelineState claim() {
    const std::uint64_t item = claimed_.fetch_add(1, std::memory_order_relaxed);  // only unique
    return make_pipeline_state(PipelineUserType::kProducer, num_stages(), item);
  }

  // Producer: blocks until the slot is free.
  [[nodiscard]] WaitResult acquire(const PipelineState& state,
                                   Deadline deadline = Deadline::max()) {
    return await(PipelineUserType::kProducer, state, free_turn(state), deadline);
  }
  // Producer, after acquire: the slot is full. Do not block.
  void commit(const PipelineState& state) {
    full_.fetch_add(1, std::memory_order_relaxed);  // account
    fill(state, Filled::kItem);
  }
  void commit_end(const PipelineState& state) { fill(state, Filled::kEnd); }
  void commit_error(const PipelineState& state, Error error) {
    slot_at(state).error.emplace(std::move(error));
    fill(state, Filled::kError);
  }

  // Consumer: blocks until the slot is full.
  [[nodiscard]] WaitResult wait(const PipelineState& state, Deadline deadline = Deadline::max()) {
    const std::int64_t full = full_.load(std::memory_order_relaxed);
    const WaitResult result =
        await(PipelineUserType::kConsumer, state, free_turn(state) + 1, deadline);
    if (result == WaitResult::kReady && filled(state) == Filled::kItem) {
      full_.fetch_sub(1, std::memory_order_relaxed);
      items_.fetch_add(1, std::memory_order_relaxed);
      occupancy_sum_.fetch_add(full, std::memory_order_relaxed);
    }
    return result;
  }
  // Consumer, after wait and before release.
  Filled filled(const PipelineState& state) const { return slot_at(state).filled; }
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
    PL_CHECK(slot.turn.load(std::memory_order_relaxed) == free_turn(state) + 1,
             "a slot is released once, after its wait");
    slot.turn.store(free_turn(state) + 2);  // pairs with the loads of `turn` in await()
    free_.notify();
  }

  // The slot's value, for whoever holds it.
  T& slot(const PipelineState& state) { return slot_at(state).value; }
  // By index, while no other thread uses the pipeline.
  T& slot(std::uint32_t index) { return slots_[index]->value; }

  // Wakes everything. Any thread, any number of times.
  void stop() {
    stopped_.store(true);  // pairs with the loads in await()
    free_.notify();
    filled_.notify();
  }
  bool stopped() const { return stopped_.load(); }

  // Waits under way count up to now. Any thread.
  WaitStats stats() const {
    WaitStats s;
    s.acquire_wait_ns = ledger_.waited_ns(PipelineUserType::kProducer);
    s.consumer_wait_ns = ledger_.waited_ns(PipelineUserType::kConsumer);
    s.items = items_.load(std::memory_order_relaxed);
    s.occupancy_sum = occupancy_sum_.load(std::memory_order_relaxed);
    return s;
  }

  // Items committed and not yet waited for; approximate while others run.
  std::int64_t full_slots() const { return full_.load(std::memory_order_relaxed); }

  // Who waits for what since when, longest first. Any thread.
  std::vector<Stall> stalls() const { return ledger_.stalls(num_stages()); }
  // "blocks: the consumer has waited 12.3 s for item 17"; empty when nobody waits.
  std::string stall_report() const { return stall_text(name_, stalls()); }

 private:
  struct Slot {
    template <typename Make>
    Slot(Make& make, std::uint32_t index) : value(make(index)) {}
    T value;
    Filled filled = Filled::kItem;  // published by `turn`, as are value and error
    std::optional<Error> error;
    alignas(kCacheLine) Atom<std::uint64_t> turn{0};
  };

  static std::uint64_t free_turn(const PipelineState& state) {
    return 2 * (state.count / state.num_stages);
  }
  Slot& slot_at(const PipelineState& state) const {
    PL_CHECK(state.num_stages == slots_.size(), "a state of this hand-off");
    return *slots_[state.index];
  }

  void fill(const PipelineState& state, Filled filled) {
    Slot& slot = slot_at(state);
    PL_CHECK(slot.turn.load(std::memory_order_relaxed) == free_turn(state),
             "a slot is committed once, after its acquire");
    slot.filled = filled;
    slot.turn.store(free_turn(state) + 1);  // pairs with the loads of `turn` in await()
    filled_.notify();
  }

  WaitResult await(PipelineUserType side, const PipelineState& state, std::uint64_t turn,
                   Deadline deadline) {
    const Slot& slot = slot_at(state);
    if (stopped_.load()) return WaitResult::kStopped;
    // Pairs with the stores in fill() and release().
    if (slot.turn.load(std::memory_order_acquire) == turn) return WaitResult::kReady;
    const WaitLedger::Entry waiting(ledger_, side, state.count);
    Parking& parking = side == PipelineUserType::kProducer ? free_ : filled_;
    const bool woken =
        parking.await([&] { return stopped_.load() || slot.turn.load() == turn; }, deadline);
    if (!woken) return WaitResult::kTimeout;
    return stopped_.load() ? WaitResult::kStopped : WaitResult::kReady;
  }

  const std::string name_;
  std::vector<std::unique_ptr<Slot>> slots_;
  alignas(kCacheLine) Atom<std::uint64_t> claimed_{0};
  alignas(kCacheLine) Atom<bool> stopped_{false};
  Parking free_, filled_;
  WaitLedger ledger_;
  // Accounts only: nothing is ordered by them.
  alignas(kCacheLine) std::atomic<std::int64_t> items_{0};
  std::atomic<std::int64_t> occupancy_sum_{0}, full_{0};
};

}  // namespace paceline::pipeline
