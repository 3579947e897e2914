// Batches for a training loop that never waits for data and never loses or repeats a row.
//
// Guarantee
//   * next_batch() returns a lease on a batch, the end, a stop, or an error: four different things.
//     Batches come in the global order, each row exactly once per epoch, the short last batch of an
//     epoch included; then the end, for ever.
//   * An error met while fetching ahead is returned in its turn, after every batch before it, and
//     stays the answer.
//   * offsets_to_commit() is the position after the last batch that was handed out *and* marked
//     trained, never of a batch that was only fetched. It changes at batch boundaries only.
//   * What is delivered is a pure function of the dataset's fingerprint, seed, window, limits and
//     start; not of depth, readers, leases, memory or overlap.
//   * From a position on, any limits and number of ranks deliver every remaining row once. A seek
//     reads at most one window of blocks.
//   * Bad rows and blocks end the run unless skipping is asked for; each skip is logged, counted
//     and bounded per epoch, and the position counts it as consumed.
// Mechanism
//   readers -> [row-group slots] -> batcher thread -> [up to depth batches] -> caller
//                                       ^------------ [buffers given back] <----- leases
//   All arrows are pipeline::HostPipeline. `current` is the batch handed out last, `reserve` the
//   queue of up to `depth` batches cut ahead, `exhausted` says that nothing more will be cut.
//   Ranks: every rank cuts the same global batch and keeps its own share of examples; a share may
//   be empty, so that all ranks see equally many batches.
// Limits
//   One caller of next_batch(). Up to `leases` leases may be out; they may be given back in any
//   order and from any thread, but must be gone before the pipeline is destroyed. There are
//   depth + leases + 1 batch buffers, all allocated at creation; row-group slots grow to the
//   largest block they met, and not beyond what create() reckoned with.
// Shutdown
//   stop() may be called from any thread in any state; next_batch() then returns kStopped within a
//   second, also when it is already waiting. The destructor stops and joins; a read that does not
//   return within the grace period is named in the log and left behind, holding no slot of anyone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/position.hpp"
#include "data/source.hpp"
#include "features/batch.hpp"
#include "pipeline/wait_stats.hpp"

namespace paceline::data {

struct BatchPipelineOptions {
  features::BatchLimits limits;     // of the global batch, all ranks together
  int depth = 2;                    // >= 1: batches cut ahead
  int readers = 1;                  // >= 1
  int leases = 1;                   // batches that the caller may hold at once
  std::int64_t shuffle_window = 0;  // blocks; 0: file order; >= number of blocks: all rows
  std::uint64_t seed = 0;
  std::int64_t epochs = 1;           // the end comes after this many epochs, counted from epoch 0
  bool overlap = true;               // false: nothing is cut before next_batch() asks for it
  bool fetch_at_creation = true;     // false: the first next_batch() starts the readers
  double stall_limit_s = 600;        // a longer wait in next_batch() is an error naming the stage
  std::int64_t memory_limit = 0;     // bytes of row-group slots and batch buffers; 0: no limit
  std::int64_t snapshot_bytes = 0;   // of the limit, which a run keeps for its checkpoints
  std::int64_t skip_bad_rows = 0;    // per epoch; the source must let as many pass
  std::int64_t skip_bad_blocks = 0;  // per epoch
  int rank = 0;                      // of `ranks`: which share of each global batch is delivered
  int ranks = 1;
  // A start in another dataset begins its epoch again, in this one; otherwise it is refused.
  bool allow_changed_data = false;
};

// Most bytes that a pipeline's row-group slots and batch buffers will take, and how many of each.
struct BatchPipelineMemory {
  std::int64_t block_slots = 0;
  std::int64_t block_bytes = 0;  // of the largest block, decoded
  std::int64_t batch_buffers = 0;
  std::int64_t batch_bytes = 0;
  // Footers may lie: the sum is at most half of what 64 bits hold.
  std::int64_t total() const {
    const double sum = static_cast<double>(block_slots) * static_cast<double>(block_bytes) +
                       static_cast<double>(batch_buffers) * static_cast<double>(batch_bytes);
    if (sum > 4.6e18) return std::int64_t{1} << 62;
    return block_slots * block_bytes + batch_buffers * batch_bytes;
  }
};
// Two windows of blocks; in file order readers + 1 blocks, fewer (at least two) where the memory
// limit wants it.
BatchPipelineMemory reckon_memory(const Source& source, const features::Schema& schema,
                                  const BatchPipelineOptions& options);

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

// "bad data skipped: 3 rows, 1 row group of 250 rows"; empty when nothing was.
std::string skipped_text(const SkippedData& skipped);

struct BatchSlot;  // a batch buffer; private to this room

class BatchPipeline {
 public:
  class Lease;
  struct Fetched;

  // Starts at `start` (a default Position: from the beginning), before anything is read. Refuses
  // (kInvalidArgument) options out of range, a start that belongs to another dataset, seed or
  // window, and a memory limit that two windows and the buffers exceed. Source and schema must
  // outlive the pipeline.
  static Result<std::unique_ptr<BatchPipeline>> create(const Source& source,
                                                       const features::Schema& schema,
                                                       const BatchPipelineOptions& options,
                                                       const Position& start);
  ~BatchPipeline();
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  // Blocks until a batch is there. A caller that holds `options.leases` leases and asks for one
  // more waits for its own buffers, until the stall limit says so. As long as it blocks it calls
  // `while_waiting` on this thread, some ten times a second.
  Result<Fetched> next_batch(const std::function<void()>& while_waiting = {});

  Position offsets_to_commit() const;
  BatchPipelineState state() const;
  void stop();

  // Rows of one epoch.
  std::int64_t epoch_rows() const;
  const features::BatchLayout& layout() const;
  // What was cut or ignored so far, in batches handed out, of all ranks.
  features::CutCounts cuts() const;
  // What the run skipped up to the last batch handed out, and after the end all of it.
  SkippedData skipped() const;
  BatchPipelineMemory memory() const;
  // "blocks" (readers -> batcher) and "batches" (batcher -> caller).
  pipeline::WaitStats block_waits() const;
  pipeline::WaitStats batch_waits() const;

 private:
  struct Impl;
  explicit BatchPipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Examples and tokens of a global batch, of which a lease holds this rank's share.
struct GlobalBatch {
  std::int32_t examples = 0;
  std::int32_t tokens = 0;
  std::int32_t candidate_tokens = 0;
};

// Move-only right to read one batch. Destroying it, or give_back(), frees its buffer.
class BatchPipeline::Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  explicit operator bool() const { return owner_ != nullptr; }
  // This rank's share of the batch; empty when it has fewer examples than there are ranks.
  const features::Batch& batch() const;
  const GlobalBatch& global() const;
  // Position after this batch, of all ranks.
  const Position& position() const;
  std::int64_t epoch() const;
  // No row comes after it in its epoch; not set where only skipped rows come after it.
  bool last_of_epoch() const;

  // The optimizer step that used this batch was enqueued: offsets_to_commit() moves to its end.
  // Batches are marked in the order in which they were handed out.
  void mark_trained();
  void give_back();
  // The same while something else still reads the batch, a copy to a device for instance:
  // `until_free` is called on the batcher's thread before the buffer is written again, and blocks
  // until it may be; at the latest in the pipeline's destructor, on the thread that destroys it. It
  // must return within a bounded time; what it throws comes as an error of next_batch().
  void give_back_when(std::function<void()> until_free);

 private:
  friend class BatchPipeline;
  BatchPipeline* owner_ = nullptr;
  BatchSlot* slot_ = nullptr;
};

struct BatchPipeline::Fetched {
  FetchState state = FetchState::kEnd;
  Lease lease;
};

}  // namespace paceline::data
