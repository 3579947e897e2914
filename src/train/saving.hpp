// When a run saves, and what is told about it: the policy of [checkpoint] around a Saver.
//
// A save is due by steps, by time or because somebody asked. One that fails is logged, counted and
// written to saves.jsonl; training goes on until checkpoint.fail_after of them in a row. Weights
// whose last steps were not finite are not worth an older checkpoint: they are saved at the end
// only, and then nothing is removed.
// Threads: request() and requested() from any, all else from the training thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/saver.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "train/run_directory.hpp"
#include "train/run_state.hpp"
#include "train/train_config.hpp"

namespace paceline::train {

class Saving {
 public:
  // The state of the last step boundary, views on live tensors. Called when a save begins, and by
  // create() for their shapes.
  using MakeContent = std::function<Result<checkpoint::Content>()>;

  // `restored`: what the run goes on from; null at a first start. `directory` must outlive this.
  static Result<std::unique_ptr<Saving>> create(const CheckpointConfig& config,
                                                RunDirectory& directory, MakeContent content,
                                                const checkpoint::Restored* restored);

  // A save is due by steps or time.
  bool due(std::int64_t step) const;
  // After a step, with what due() said of it. The error that ends the run: too many failures, or a
  // wait for the disk beyond its limit.
  Result<void> at_boundary(const RunCounters& counters, bool is_due);
  // At the same boundary, any number of times: saves when somebody asked.
  Result<void> while_waiting(const RunCounters& counters);
  // Between backward and update: until no copy reads the tables; then what the update changes.
  Result<void> before_table_update() { return saver_->before_table_update(); }
  void touch(std::span<const std::int32_t> lookups) { saver_->touch(lookups); }
  // Waits for saves under way and makes the last one, unless the step is saved already.
  Result<void> finish(const RunCounters& counters);

  // Save at the next boundary.
  void request() { requested_.store(true); }
  bool requested() const { return requested_.load(); }

  checkpoint::SaverStats stats() const { return saver_->stats(); }
  // Exposed wait of the training thread so far.
  double wait_s() const { return saver_->stats().wait_s; }
  std::size_t memory_bytes() const { return saver_->memory_bytes(); }

 private:
  Saving(const CheckpointConfig& config, RunDirectory& directory, MakeContent content);
  Result<void> save_if(bool is_due, const RunCounters& counters);
  // True when the step needs no save for whoever asked.
  bool settled(const RunCounters& counters);
  Result<checkpoint::SaveStart> start(const RunCounters& counters, bool must);
  void collect();
  void tell(const checkpoint::SaveReport& report);

  CheckpointConfig config_;
  RunDirectory& directory_;
  MakeContent content_;
  std::unique_ptr<checkpoint::Saver> saver_;
  Clock::time_point begun_at_ = Clock::now();  // of the last save begun
  std::int64_t begun_step_ = -1;
  std::int64_t saved_step_ = -1;     // known to be published
  std::vector<std::int64_t> asked_;  // steps begun because somebody asked, and not told yet
  int failed_in_a_row_ = 0;
  std::string last_failure_;
  bool told_waiting_ = false;
  std::atomic<bool> requested_{false};
};

}  // namespace paceline::train
