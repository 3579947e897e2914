// Times the blocking waits of one hand-off, those under way included. Only slow paths come here.
// Any threads. Private to this room.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/clock.hpp"
#include "pipeline/wait_stats.hpp"

namespace paceline::pipeline {

class WaitLedger {
 public:
  // A wait, from construction to destruction.
  class Entry {
   public:
    Entry(WaitLedger& ledger, PipelineUserType side, std::uint64_t item)
        : ledger_(ledger), side_(side), item_(item), since_ns_(now_ns()) {
      const std::lock_guard lock(ledger_.mutex_);
      next_ = ledger_.first_;
      if (next_ != nullptr) next_->previous_ = this;
      ledger_.first_ = this;
    }
    ~Entry() {
      const std::lock_guard lock(ledger_.mutex_);
      (previous_ != nullptr ? previous_->next_ : ledger_.first_) = next_;
      if (next_ != nullptr) next_->previous_ = previous_;
      ledger_.waited_ns_[static_cast<std::size_t>(side_)] += now_ns() - since_ns_;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class WaitLedger;
    WaitLedger& ledger_;
    const PipelineUserType side_;
    const std::uint64_t item_;
    const std::int64_t since_ns_;
    Entry* next_ = nullptr;
    Entry* previous_ = nullptr;
  };

  // All waits of a side until now, those under way included.
  std::int64_t waited_ns(PipelineUserType side) const {
    const std::lock_guard lock(mutex_);
    std::int64_t total = waited_ns_[static_cast<std::size_t>(side)];
    const std::int64_t now = now_ns();
    for (const Entry* e = first_; e != nullptr; e = e->next_) {
      if (e->side_ == side) total += now - e->since_ns_;
    }
    return total;
  }

  // The waits under way.
  std::vector<Stall> stalls(std::uint32_t num_stages) const {
    std::vector<Stall> all;
    const std::lock_guard lock(mutex_);
    const std::int64_t now = now_ns();
    for (const Entry* e = first_; e != nullptr; e = e->next_) {
      all.push_back({e->side_, e->item_, now - e->since_ns_, num_stages});
    }
    return all;
  }

 private:
  mutable std::mutex mutex_;
  Entry* first_ = nullptr;
  std::array<std::int64_t, 2> waited_ns_{};
};

}  // namespace paceline::pipeline
