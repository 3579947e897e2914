// How many different ids were seen, in bounded memory: the k smallest hashes. Exact below k ids,
// then within about 1 / sqrt(k) (Bar-Yossef and others, "Counting distinct elements in a data
// stream", RANDOM 2002). The result does not depend on the order of adds and merges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_set>

#include "features/hash.hpp"

namespace paceline::data {

class DistinctCount {
 public:
  static constexpr std::size_t kKept = std::size_t{1} << 16;

  void add(std::int64_t id) { add_hash(features::hash_id(id, 0)); }

  void merge(const DistinctCount& other) {
    for (const auto hash : other.kept_) add_hash(hash);
    more_ = more_ || other.more_;
  }

  bool exact() const { return !more_; }
  std::int64_t estimate() const {
    if (!more_) return static_cast<std::int64_t>(kept_.size());
    const double largest = (static_cast<double>(order_.top()) + 1.0) / 18446744073709551616.0;
    return static_cast<std::int64_t>(static_cast<double>(kKept - 1) / largest);
  }

 private:
  void add_hash(std::uint64_t hash) {
    if (kept_.size() == kKept && hash > order_.top()) {
      more_ = true;
      return;
    }
    if (!kept_.insert(hash).second) return;
    order_.push(hash);
    if (kept_.size() <= kKept) return;
    more_ = true;
    kept_.erase(order_.top());
    order_.pop();
  }

  std::unordered_set<std::uint64_t> kept_;
  std::priority_queue<std::uint64_t> order_;  // the largest on top
  bool more_ = false;                         // ids beyond the kept ones were seen
};

}  // namespace paceline::data
