// The training loop: batches in their order, one optimizer step each, a state on disk that any
// kill can be resumed from.
//
// Guarantee: for one device kind and build, the losses and weights are bit-identical for every
// pipeline depth, reader count and thread count, overlap on or off, and after any number of kills
// and resumes. Every example is trained once per epoch. An error in the data is raised after every
// batch before it was trained and saved. Evaluating, saving and logging change no result.
// Threads: run() is called once, from one thread; request_stop() and request_save() from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/saver.hpp"
#include "core/error.hpp"
#include "train/stop_request.hpp"
#include "train/train_config.hpp"

namespace paceline::telemetry {
class Progress;
}

namespace paceline::train {

enum class TrainEnd : std::uint8_t {
  kDone,     // all epochs, or max_steps: exit 0
  kStopped,  // request_stop(): the state is saved, exit 130
};

struct TrainSummary {
  TrainEnd end = TrainEnd::kDone;
  std::int64_t step = 0;
  std::int64_t first_step = 0;  // where this process went on from
  std::int64_t examples = 0;    // in this process
  std::int64_t skipped_steps = 0;
  double seconds = 0.0;       // in the loop
  double wait_seconds = 0.0;  // exposed wait for batches
  double save_seconds = 0.0;  // exposed wait for saves, the last one's end included
  double eval_seconds = 0.0;
  checkpoint::SaverStats saves;     // of this process
  data::SkippedData skipped;        // bad data let pass in the whole run
  features::CutCounts cuts;         // what was cut or ignored in the whole run
  pipeline::WaitStats block_waits;  // readers -> batcher
  pipeline::WaitStats batch_waits;  // batcher -> loop
};

struct TrainOptions {
  std::string version, commit;      // of the program, for the record
  bool allow_changed_keys = false;  // go on although fixed keys differ
  bool allow_changed_data = false;  // begin the epoch again with other files
  // Called after every step with its dataset rows, e.g. to count examples in tests.
  std::function<void(std::span<const std::int64_t> dataset_rows)> on_batch;
};

class Trainer {
 public:
  // Opens data and run directory, restores the newest checkpoint when there is one.
  static Result<std::unique_ptr<Trainer>> create(TrainConfig config, TrainOptions options,
                                                 telemetry::Progress& progress);
  ~Trainer();

  Result<TrainSummary> run();

  // Finish the step under way, save, return kStopped. Noticed within a second, also while waiting
  // for data.
  void request_stop();
  // Save at the next step boundary; at once while waiting for data. Several requests before a save
  // are one. Logged with step and path when it is done.
  void request_save();

  std::int64_t epoch_rows() const;
  // Bytes of weights, optimizer state, activations, gradients, snapshots for saves, and the batch
  // pipeline at most.
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::train
