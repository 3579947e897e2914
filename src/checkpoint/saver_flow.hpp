// What the threads of a Saver share, and what its copier and writer run. Private to the room.
//
//   training --orders--> copier --tables--> writer
//            --dense---------------------->
//
// A writer whose call hangs may outlive the saver: it holds this struct and nothing else. The
// copier reads the caller's tables, so it is always waited for; between two blocks it looks for a
// stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/file_ops.hpp"
#include "checkpoint/publication.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/saver_rows.hpp"
#include "core/buffer.hpp"
#include "core/clock.hpp"
#include "pipeline/host_pipeline.hpp"
#include "pipeline/parking.hpp"
#include "pipeline/worker.hpp"

namespace paceline::checkpoint {

// Memory for tensors of the names, types and shapes of others, one after the other.
class SnapshotBuffer {
 public:
  SnapshotBuffer() = default;
  // For `rows` entries of the first dimension, or all of it without.
  explicit SnapshotBuffer(std::span<const TensorView> like, std::optional<std::int64_t> rows = {});

  // Views on what was copied last. With rows: so many entries of the first dimension.
  std::span<const TensorView> views() const { return views_; }
  void set_rows(std::int64_t rows);
  std::span<std::byte> memory(std::size_t tensor);
  std::size_t row_bytes(std::size_t tensor) const { return row_bytes_[tensor]; }
  std::size_t memory_bytes() const { return bytes_.size_bytes(); }

 private:
  HostBuffer bytes_;
  std::vector<std::size_t> offsets_, row_bytes_;
  std::vector<TensorView> views_;
};

struct DenseSlot {
  std::int64_t step = 0;
  nlohmann::json state;
  bool prune = true;
  SnapshotBuffer model, optimizer;
};

struct TableSlot {
  SnapshotBuffer tables;
  std::vector<std::int64_t> rows;  // of a difference; room for the most at creation
  std::optional<Base> base;        // of a difference
};

struct CopyOrder {
  std::vector<std::span<const std::byte>> tables;  // the caller's
  std::optional<Base> base;                        // of a difference
};

// How one attempt ended.
struct Ended {
  SaveReport report;
  std::optional<Base> id;  // when published
  bool base_lost = false;
};

// What is written, wherever it lies.
struct SaveParts {
  std::int64_t step = 0;
  std::span<const TensorView> model, optimizer, tables;
  std::optional<TableDelta> delta;
  const nlohmann::json* state = nullptr;
  bool prune = true;
};

struct SaverFlow {
  SaverFlow(std::shared_ptr<FileOps> file_ops, const SaverOptions& opt, const Content& live,
            std::optional<Base> base, std::span<const std::int64_t> touched);

  const SaverOptions options;
  const std::shared_ptr<FileOps> ops;
  const std::int64_t table_rows;
  // The training thread's, and the copier's between an order's wait and its release.
  TouchedRows touched;
  pipeline::HostPipeline<CopyOrder> orders;
  pipeline::HostPipeline<DenseSlot> dense;
  pipeline::HostPipeline<TableSlot> tables;
  const pipeline::StopFlag giving_up;  // looked at between the parts of a save
  std::size_t memory_bytes = 0;        // fixed at creation

  std::atomic<std::int64_t> saved{0}, skipped{0}, failed{0}, wait_ns{0};
  std::atomic<std::int64_t> ended_count{0};
  pipeline::EventCount changed;  // of ended_count, and at a stop

  // All attempts ended since the last call.
  std::vector<Ended> take_ended();
  // The error of the last attempt; empty when it was published, or there was none.
  std::optional<Error> last_error(int at_least_in_a_row) const;
  // "writing the tables of step 12 for 3.4 s"; empty when nothing is under way.
  std::string writer_report() const;
  void stop(std::optional<Error> why = {});
  // Why the threads ended, when that was not asked for.
  Error stopped_error() const;

  // One attempt, from the first file operation to its report. `tables_done` is called once, as
  // soon as nothing reads parts.tables any more.
  void attempt(const SaveParts& parts, const std::function<void()>& tables_done);

 private:
  Result<Publication> begin(const SaveParts& parts, bool& base_lost);
  Result<Published> publish(const SaveParts& parts, const std::function<void()>& tables_done,
                            bool& base_lost);
  void prune(const SaveParts& parts);
  void doing(const char* what, std::int64_t step);
  void record(Ended ended, std::optional<Error> error);

  mutable std::mutex mutex_;
  std::vector<Ended> ended_;
  int failed_in_a_row_ = 0;
  std::optional<Error> last_error_, why_stopped_;
  const char* doing_ = nullptr;
  std::int64_t doing_step_ = 0;
  std::int64_t doing_since_ns_ = 0;
};

// Copies whole tables, or the rows of a difference; in blocks, and false when a stop came between.
bool copy_tables(const CopyOrder& order, const TouchedRows& touched, std::int64_t table_rows,
                 TableSlot& slot, const pipeline::StopFlag& stop);

// Bodies of the two threads.
Result<void> serve_copies(SaverFlow& flow, const pipeline::StopFlag& stop);
Result<void> write_saves(SaverFlow& flow);

}  // namespace paceline::checkpoint
