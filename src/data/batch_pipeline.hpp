// Batches for a training loop that never waits for data and never loses or repeats a row.
//
// Guarantee
//   * next_batch() hands out batches in the global order, each exactly once per epoch, the short
//     last one included; then kEnd, for ever.
//   * An error met while fetching ahead is returned in its turn, after every batch before it.
//   * offsets_to_commit() is the position after the last batch that was handed out *and* marked
//     trained, never of a batch that was only fetched.
//   * What is delivered does not depend on depth, readers, or overlap.
// Mechanism
//   readers -> [row-group slots] -> batcher thread -> [depth + leases + 1 batch slots] -> caller.
//   Both arrows are pipeline::HostPipeline. `current` is the batch handed out last, `reserve` the
//   queue of up to `depth` batches cut ahead, `exhausted` says that nothing more will be cut.
// Limits
//   One caller of next_batch(). Leases may be given back from any thread, but must be gone before
//   the pipeline is destroyed. All batch memory is allocated at creation.
// Shutdown
//   stop() may be called from any thread; next_batch() then returns kStopped within a second, also
//   when it is already waiting. The destructor stops and joins; a read that does not return within
//   the grace period is named in the log and left behind.
#pragma once

#include <cstdint>
#include <memory>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/position.hpp"
#include "data/source.hpp"
#include "features/batch.hpp"
#include "pipeline/wait_stats.hpp"

namespace paceline::data {

struct BatchPipelineOptions {
  features::BatchLimits limits;
  int depth = 2;                    // >= 1: batches cut ahead
  int readers = 1;                  // >= 1
  int leases = 1;                   // batches that the caller may hold at once
  std::int64_t shuffle_window = 0;  // blocks; 0: file order; >= number of blocks: all rows
  std::uint64_t seed = 0;
  std::int64_t epochs = 1;     // the end comes after this many epochs, counted from epoch 0
  bool overlap = true;         // false: nothing is cut before next_batch() asks for it
  double stall_limit_s = 600;  // a longer wait in next_batch() is an error naming the stage
};

enum class FetchState : std::uint8_t {
  kBatch,    // a lease was handed out: train it, mark_trained(), give it back
  kEnd,      // every row was handed out: finish the run
  kStopped,  // stop() was called: save and leave
};

// What the pipeline holds ahead of the caller, for reports.
struct BatchPipelineState {
  std::int64_t current = -1;  // number of the batch handed out last; -1 before the first
  std::int64_t reserve = 0;   // batches cut and waiting
  bool exhausted = false;     // nothing more will be cut
};

class BatchPipeline {
 public:
  class Lease;
  struct Fetched;

  // Starts at `start` (a default Position: from the beginning). Refuses a start that belongs to
  // another dataset, seed or window. Source and schema must outlive the pipeline.
  static Result<std::unique_ptr<BatchPipeline>> create(const Source& source,
                                                       const features::Schema& schema,
                                                       const BatchPipelineOptions& options,
                                                       const Position& start);
  ~BatchPipeline();
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  // Blocks until a batch is there. The lease must be given back before more than
  // `options.leases` are held.
  Result<Fetched> next_batch();

  Position offsets_to_commit() const;
  BatchPipelineState state() const;
  void stop();

  // Rows of one epoch.
  std::int64_t epoch_rows() const;
  const features::BatchLayout& layout() const;
  // What was cut or ignored so far, in batches handed out.
  features::CutCounts cuts() const;
  // "blocks" (readers -> batcher) and "batches" (batcher -> caller).
  pipeline::WaitStats block_waits() const;
  pipeline::WaitStats batch_waits() const;

 private:
  struct Impl;
  explicit BatchPipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Move-only right to read one batch. Destroying it, or give_back(), frees the slot.
class BatchPipeline::Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  explicit operator bool() const { return owner_ != nullptr; }
  const features::Batch& batch() const;
  // Position after this batch.
  const Position& position() const;
  std::int64_t epoch() const;
  bool last_of_epoch() const;

  // The optimizer step that used this batch was enqueued: offsets_to_commit() moves to its end.
  // Batches are marked in the order in which they were handed out.
  void mark_trained();
  void give_back();

 private:
  friend class BatchPipeline;
  BatchPipeline* owner_ = nullptr;
  std::uint32_t slot_ = 0;
};

struct BatchPipeline::Fetched {
  FetchState state = FetchState::kEnd;
  Lease lease;
};

}  // namespace paceline::data
