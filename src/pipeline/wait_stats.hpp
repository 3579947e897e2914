// What a hand-off waited: measured where the waiting happens.
#pragma once

#include <cstdint>

namespace paceline::pipeline {

struct WaitStats {
  std::int64_t acquire_wait_ns = 0;   // producers waiting for a free slot
  std::int64_t consumer_wait_ns = 0;  // the consumer waiting for a full slot
  std::int64_t items = 0;             // slots consumed
  std::int64_t occupancy_sum = 0;     // full slots seen at each consumer wait; / items = mean

  double mean_occupancy() const {
    return items > 0 ? static_cast<double>(occupancy_sum) / static_cast<double>(items) : 0.0;
  }
};

}  // namespace paceline::pipeline
