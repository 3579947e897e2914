// Which slot of a hand-off, and on which lap: the same value on host and device.
//
// A hand-off has num_stages slots. A consumer starts at phase 0: it waits for the first fill. A
// producer starts at phase 1: its first num_stages acquires pass at once, since every slot is free.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define PL_HOST_DEVICE __host__ __device__
#else
#define PL_HOST_DEVICE
#endif

namespace paceline {

enum class PipelineUserType : std::uint8_t { kProducer, kConsumer };

struct PipelineState {
  std::uint32_t index = 0;       // slot, in [0, num_stages)
  std::uint32_t phase = 0;       // flips each time index wraps
  std::uint64_t count = 0;       // how many slots this user has passed
  std::uint32_t num_stages = 1;  // at least 1

  PL_HOST_DEVICE constexpr PipelineState& operator++() {
    ++count;
    if (++index == num_stages) {
      index = 0;
      phase ^= 1U;
    }
    return *this;
  }
};

PL_HOST_DEVICE constexpr PipelineState make_pipeline_state(PipelineUserType user,
                                                           std::uint32_t num_stages) {
  return {0, user == PipelineUserType::kProducer ? 1U : 0U, 0, num_stages};
}

// The state of a user that has passed `count` slots, without stepping there.
PL_HOST_DEVICE constexpr PipelineState make_pipeline_state(PipelineUserType user,
                                                           std::uint32_t num_stages,
                                                           std::uint64_t count) {
  const std::uint32_t start = user == PipelineUserType::kProducer ? 1U : 0U;
  return {static_cast<std::uint32_t>(count % num_stages),
          start ^ static_cast<std::uint32_t>((count / num_stages) & 1U), count, num_stages};
}

}  // namespace paceline
