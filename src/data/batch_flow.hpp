// What the threads of a BatchPipeline share, and what its readers run. Private to this room.
//
//   readers (read_blocks) -> blocks -> batcher (Batcher) -> batches -> next_batch()
//                                         ^- given_back <- leases
//
// A reader whose call hangs may outlive the pipeline: it holds this struct, and after its call it
// touches neither source nor schema.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  GlobalBatch global;
  features::CutCounts cuts;
  Position position;        // after this batch
  std::int64_t number = 0;  // within this pipeline
  std::int64_t epoch = 0;
  bool last_of_epoch = false;
  std::function<void()> until_free;  // called before the buffer is written again
};

// What one reader does, for reports and for errors in their turn.
struct ReaderStatus {
  std::atomic<std::int64_t> block{-1};  // being read; -1 between reads
  std::atomic<std::int64_t> since_ns{0};
  std::optional<PipelineState> holding;  // the reader's thread only
};

struct BatchFlow {
  BatchFlow(const Source& src, const features::Schema& sch, const BatchPipelineOptions& opt,
            const BatchPipelineMemory& reckoned, const Position& from);

  const Source& source;
  const features::Schema& schema;
  const BatchPipelineOptions options;
  const BatchPipelineMemory memory;
  const Position start;
  const features::BatchLayout layout;
  const BlockSequence sequence;
  std::vector<std::unique_ptr<BatchSlot>> buffers;
  pipeline::HostPipeline<features::RowBlock> blocks;
  pipeline::HostPipeline<BatchSlot*> batches;     // cut, in order
  pipeline::HostPipeline<BatchSlot*> given_back;  // free buffers; every buffer at the start
  Gate block_gate;                                // tickets that may be read
  Gate batch_gate;                                // batches that may be cut
  std::vector<std::unique_ptr<ReaderStatus>> readers;
  std::atomic<bool> exhausted{false};
  SkippedData skipped_in_all;  // published by the end

  // Any thread. The buffer's next use is a batch to come.
  void give_back(BatchSlot* buffer);
  void stop();
  // Who waits for whom, and which reads are under way.
  std::string stall_report() const;
};

// Body of a reader. A failed read ends it, unless blocks may be skipped; hand_over_error() then
// puts the error in its turn.
Result<void> read_blocks(BatchFlow& flow, ReaderStatus& status, const pipeline::StopFlag& stop);
void hand_over_error(BatchFlow& flow, ReaderStatus& status, Error error);

}  // namespace paceline::data
