// Which table rows the next checkpoint has to hold. Private to the room; one thread at a time.
//
// A difference is always one to a full checkpoint that was published, so that a failed save of
// either kind loses no row: rows are forgotten only when a full checkpoint that holds them is
// known to be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace paceline::checkpoint {

// Rows 0 .. rows - 1, one bit each.
class RowSet {
 public:
  explicit RowSet(std::int64_t rows);
  void clear();
  void insert(std::int64_t row);
  std::int64_t size() const { return size_; }
  // Ascending; `out` has room for size() rows.
  void list(std::span<std::int64_t> out) const;
  std::size_t memory_bytes() const { return words_.size() * sizeof(words_[0]); }

 private:
  std::vector<std::uint64_t> words_;
  std::int64_t size_ = 0;
};

class TouchedRows {
 public:
  // `most` differences are made between two full checkpoints; 0: none, and nothing is kept.
  TouchedRows(std::int64_t rows, std::int64_t most, std::optional<Base> base,
              std::span<const std::int64_t> touched);

  void touch(std::span<const std::int32_t> rows);
  // The next attempt begins here: what it is a difference to, or nothing when it is a full one.
  // Attempts end in the order in which they began.
  std::optional<Base> begin();
  void published(const Base& id);
  // `base_lost`: the full checkpoint is not where it was.
  void failed(bool base_lost);

  // Since the base of a difference.
  const RowSet& since_base() const { return sets_[current_]; }
  // The most rows that a difference has: with more a full checkpoint costs little more.
  static std::int64_t most_rows(std::int64_t rows) { return rows / 2; }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Attempt {
    bool full = true;
    std::size_t set = kNone;  // of a full one: rows touched since it began
  };
  bool full_is_due() const;

  std::int64_t rows_, most_;
  std::optional<Base> base_;
  std::int64_t differences_ = 0;  // to this base
  std::vector<RowSet> sets_;      // one for the base, one for each attempt under way
  std::vector<std::size_t> free_;
  std::size_t current_ = 0;
  std::vector<Attempt> under_way_;
};

}  // namespace paceline::checkpoint
