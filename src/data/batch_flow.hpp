// What the threads of a BatchPipeline share, and what they run. Private to this room.
//
//   readers (read_blocks) -> blocks -> batcher (Batcher) -> batches -> next_batch()
//
// A reader whose call hangs may outlive the pipeline: it holds this struct, and after its call it
// touches neither source nor schema.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "data/batch_pipeline.hpp"
#include "data/block_sequence.hpp"
#include "data/gate.hpp"
#include "data/global_order.hpp"
#include "pipeline/host_pipeline.hpp"
#include "pipeline/worker.hpp"

namespace paceline::data {

struct BatchSlot {
  explicit BatchSlot(const features::BatchLayout& layout) : batch(layout) {}

  features::Batch batch;
  Position position;        // after this batch
  std::int64_t number = 0;  // within this pipeline
  std::int64_t epoch = 0;
  bool last_of_epoch = false;
  PipelineState held;  // set when handed out
};

// What one reader does, for reports and for errors in their turn.
struct ReaderStatus {
  std::atomic<std::int64_t> block{-1};  // being read; -1 between reads
  std::atomic<std::int64_t> since_ns{0};
  std::optional<PipelineState> holding;  // the reader's thread only
};

struct BatchFlow {
  BatchFlow(const Source& src, const features::Schema& sch, const BatchPipelineOptions& opt,
            const Position& from);

  const Source& source;
  const features::Schema& schema;
  const BatchPipelineOptions options;
  const Position start;
  const features::BatchLayout layout;
  const BlockSequence sequence;
  pipeline::HostPipeline<features::RowBlock> blocks;
  pipeline::HostPipeline<BatchSlot> batches;
  Gate block_gate;  // tickets that may be read
  Gate batch_gate;  // batches that may be cut
  std::vector<std::unique_ptr<ReaderStatus>> readers;
  std::atomic<bool> exhausted{false};

  void stop();
  // Who waits for whom, and which reads are under way.
  std::string stall_report() const;
};

// Body of a reader. A failed read ends it; hand_over_error() then puts the error in its turn.
Result<void> read_blocks(BatchFlow& flow, ReaderStatus& status, const pipeline::StopFlag& stop);
void hand_over_error(BatchFlow& flow, ReaderStatus& status, Error error);

// Cuts the rows of all epochs into batches. One thread.
class Batcher {
 public:
  explicit Batcher(BatchFlow& flow);

  // Returns after the end was committed, or after a stop.
  Result<void> run();
  // Puts an error behind the batches committed so far.
  void hand_over_error(Error error);

 private:
  enum class Step : std::uint8_t { kGoOn, kStop };

  Result<Step> cut_epoch(std::int64_t epoch, std::int64_t first_row);
  Result<Step> cut_window(const GlobalOrder& order, std::int64_t window, std::int64_t first_row);
  Result<Step> take_blocks(const GlobalOrder& order, const GlobalOrder::Window& window);
  Result<Step> append(const features::RowBlock& block, std::int64_t block_index, std::int64_t row);
  // Makes sure that a batch is open; may wait.
  Step open();
  void commit();

  BatchFlow& flow_;
  features::BatchCutter cutter_;
  PipelineState block_state_, batch_state_;
  bool open_ = false;
  Position position_;  // after the last row appended
  std::int64_t epoch_ = 0;
  std::int64_t epoch_rows_ = 0;

  // The window in hand.
  struct Held {
    PipelineState state;
    std::int64_t block = 0;
    std::int64_t first_row = 0;  // within the window
  };
  std::vector<Held> held_;
};

}  // namespace paceline::data
