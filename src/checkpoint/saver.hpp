// Saves a run's state while it trains: the loop waits for copies, never for the disk.
//
//   training thread          copier thread         writer thread
//   save(): dense state  ->  table rows        ->  tables to disk, then dense state, publish, prune
//   is copied                are copied
//   before_table_update()  <-'
//
// Guarantee: what is published is the state at the boundary at which save() was called, to the bit.
// A save that fails publishes nothing, frees its space, is reported, and training goes on.
// Mechanism: dense state has two snapshots, tables have one, allocated at creation; all hand-offs
// are HostPipelines. With `table_deltas` a bitmap knows the rows that changed since the last full
// checkpoint that was published, so that the next one needs to hold those alone.
// Limits: when all snapshots are in use save() waits, or skips and counts. No wait is longer than
// `finish_limit_s`: then it is an error that names what hangs.
// Shutdown: finish(), then destroy. Without finish() what is being written is given up. A writer
// whose call does not return is named in the log and left behind with the snapshots.
// Threads: all calls but stats() from one thread, the one that trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "pipeline/wait_stats.hpp"

namespace paceline::checkpoint {

class FileOps;

enum class WhenBusy : std::uint8_t { kWait, kSkip };

struct SaverOptions {
  std::filesystem::path dir;
  bool background = true;  // false: save() writes before it returns, without snapshots
  WhenBusy when_busy = WhenBusy::kWait;
  Retention retention = {};
  int fail_after = 3;  // attempts in a row, >= 1
  // Differences between two full checkpoints at most; 0: always full. Full is also what begins
  // while another full one is being written, and what would hold more than half of the rows.
  std::int64_t table_deltas = 0;
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  double finish_limit_s = 600;  // a wait for the disk is an error after this
};

struct SaveOptions {
  bool prune = true;  // remove what the retention does not keep, once published
  bool must = false;  // tried also after fail_after failures, and never skipped
};

enum class SaveStart : std::uint8_t {
  kStarted,  // call before_table_update() before the tables change
  kSkipped,  // busy: ask again at a later boundary
};

// One attempt, ended.
struct SaveReport {
  std::int64_t step = 0;
  std::filesystem::path path;  // empty when it failed
  std::uint64_t bytes = 0;
  bool delta = false;
  double wait_s = 0.0;   // the training thread: for a snapshot, the dense copy and the tables' copy
  double write_s = 0.0;  // from the first file operation to the last, pruning included
  double write_cpu_s = 0.0;  // of these on a processor
  std::string error;         // empty: published
  int failed_in_a_row = 0;
};

struct SaverStats {
  std::int64_t saved = 0, skipped = 0, failed = 0;
  double wait_s = 0.0;              // exposed wait of the training thread, copying included
  pipeline::WaitStats snapshots;    // training -> writer, dense state
  pipeline::WaitStats copies;       // training -> copier: acquire waits until tables may change
  pipeline::WaitStats table_slots;  // copier -> writer
};

class Saver {
 public:
  // `live` has the tensors that will be saved: names, types and shapes stay. `base` and `touched`
  // (ascending): the full checkpoint that the run goes on from and the table rows that differ from
  // it; without a base the first checkpoint is a full one.
  static Result<std::unique_ptr<Saver>> create(const SaverOptions& options, const Content& live,
                                               std::optional<Base> base = {},
                                               std::span<const std::int64_t> touched = {});
  // The same on other file operations.
  static Result<std::unique_ptr<Saver>> create_with(std::shared_ptr<FileOps> ops,
                                                    const SaverOptions& options,
                                                    const Content& live,
                                                    std::optional<Base> base = {},
                                                    std::span<const std::int64_t> touched = {});
  ~Saver();

  // The state of a step boundary. Dense tensors are copied before it returns; tables must stay as
  // they are until before_table_update() has returned. live.delta is not set: the saver chooses.
  // The error of the last attempt after `fail_after` of them in a row; kUnavailable when a wait
  // reached its limit.
  Result<SaveStart> save(const Content& live, const SaveOptions& how = {});
  // Blocks until no copy reads the tables.
  Result<void> before_table_update();
  // Table rows that a step changed or will change (any order, repeats allowed, -1 for none). After
  // before_table_update().
  void touch(std::span<const std::int32_t> rows);
  // Waits until every save under way has ended. kUnavailable after the limit, naming what hangs;
  // the error of the last attempt when that failed.
  Result<void> finish();
  // Of attempts that ended since the last call, in their order.
  std::vector<SaveReport> take_reports();

  SaverStats stats() const;
  // Snapshots and what differences need.
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  explicit Saver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::checkpoint
