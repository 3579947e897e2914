// Cuts the rows of all epochs into batches, in the global order. One thread. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/batch_flow.hpp"
#include "data/global_order.hpp"
#include "features/batch.hpp"

namespace paceline::data {

class Batcher {
 public:
  explicit Batcher(BatchFlow& flow);

  // Returns after the end was committed, or after a stop.
  Result<void> run();
  // Puts an error behind the batches committed so far.
  void hand_over_error(Error error);

 private:
  enum class Step : std::uint8_t { kGoOn, kStop };

  // A block of the window in hand.
  struct Held {
    PipelineState state;
    std::int64_t block = 0;
    std::int64_t first_row = 0;  // within the window
    bool broken = false;         // skipped as a whole
    bool counted = false;        // as a skipped block
    std::string why;             // broken: the error
  };

  Result<Step> cut_epoch(std::int64_t epoch, std::int64_t first_row);
  Result<Step> cut_window(const GlobalOrder& order, std::int64_t window, std::int64_t first_row);
  Result<Step> take_blocks(const GlobalOrder& order, const GlobalOrder::Window& window);
  // Row `row` of a block is the next one of the order: cut it, skip it, or refuse it.
  Result<Step> take_row(Held& held, std::int64_t row);
  Result<Step> append(const features::RowBlock& block, std::int64_t row);
  Result<void> skip_row(const std::string& why);
  Result<void> skip_block(Held& held);
  // Why this row cannot be cut; empty when it can.
  std::string refusal(const Held& held, std::int64_t row) const;
  Held& held_at(std::int64_t window_row);
  void pass();
  // Makes sure that a batch is open; may wait.
  Step open();
  void commit();
  // Leaves this rank's examples in the batch.
  void keep_share(BatchSlot& slot) const;

  BatchFlow& flow_;
  features::BatchCutter cutter_;
  PipelineState block_state_, batch_state_, buffer_state_;
  BatchSlot* slot_ = nullptr;  // the batch being cut
  Position position_;          // after the last row taken
  std::int64_t epoch_ = 0;
  std::int64_t epoch_rows_ = 0;
  std::vector<Held> held_;
};

}  // namespace paceline::data
