// The blocks of a run in the order in which they are needed, numbered from a start: ticket t is the
// t-th read. A pure function; any threads. Private to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "data/global_order.hpp"

namespace paceline::data {

class BlockSequence {
 public:
  // From place `first_place` of epoch `first_epoch` to the end of the last of `epochs` epochs.
  BlockSequence(std::int64_t blocks, std::uint64_t fingerprint, std::uint64_t seed,
                std::int64_t shuffle_window, std::int64_t first_epoch, std::int64_t first_place,
                std::int64_t epochs)
      : blocks_(blocks),
        fingerprint_(fingerprint),
        seed_(seed),
        shuffle_window_(shuffle_window),
        first_epoch_(first_epoch),
        first_place_(first_place) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
    const std::int64_t left = std::max<std::int64_t>(0, epochs - first_epoch);
    if (blocks_ > 0 && left > 0) total_ = std::min(left, kMost / blocks_) * blocks_ - first_place_;
  }

  std::int64_t total() const { return total_; }

  // The dataset's block that ticket `ticket` < total() reads.
  std::int64_t block(std::int64_t ticket) const {
    const std::int64_t place = first_place_ + ticket;
    const auto order = block_order(static_cast<std::size_t>(blocks_), fingerprint_, seed_,
                                   first_epoch_ + place / blocks_, shuffle_window_);
    return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place % blocks_)));
  }

 private:
  std::int64_t blocks_;
  std::uint64_t fingerprint_, seed_;
  std::int64_t shuffle_window_, first_epoch_, first_place_;
  std::int64_t total_ = 0;
};

}  // namespace paceline::data
