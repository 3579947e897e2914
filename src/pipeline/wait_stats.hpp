// What a hand-off waited: measured where the waiting happens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/pipeline_state.hpp"

namespace paceline::pipeline {

struct WaitStats {
  std::int64_t acquire_wait_ns = 0;   // producers waiting for a free slot, summed over threads
  std::int64_t consumer_wait_ns = 0;  // the consumer waiting for a full slot
  std::int64_t items = 0;             // slots consumed
  std::int64_t occupancy_sum = 0;     // full slots seen at each consumer wait; / items = mean

  double mean_occupancy() const {
    return items > 0 ? static_cast<double>(occupancy_sum) / static_cast<double>(items) : 0.0;
  }
};

// A wait under way: who waits for what since when.
struct Stall {
  PipelineUserType side = PipelineUserType::kConsumer;
  std::uint64_t item = 0;        // number of the item waited for
  std::int64_t waited_ns = 0;    // so far
  std::uint32_t num_stages = 1;  // of the hand-off
};

// "blocks: the consumer has waited 12.3 s for item 17; a producer has waited 1.0 s for slot 0 (item
// 20)", longest first; empty when nobody waits.
std::string stall_text(std::string_view name, const std::vector<Stall>& stalls);

}  // namespace paceline::pipeline
