#include "checkpoint/saver_rows.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.hpp"

namespace paceline::checkpoint {
namespace {

constexpr std::int64_t kWordBits = 64;
// As many as there are snapshots of dense state.
constexpr std::size_t kAttempts = 2;

}  // namespace

RowSet::RowSet(std::int64_t rows)
    : words_(static_cast<std::size_t>((rows + kWordBits - 1) / kWordBits)) {}

void RowSet::clear() {
  std::fill(words_.begin(), words_.end(), 0);
  size_ = 0;
}

void RowSet::insert(std::int64_t row) {
  auto& word = words_[static_cast<std::size_t>(row / kWordBits)];
  const std::uint64_t bit = std::uint64_t{1} << (row % kWordBits);
  size_ += (word & bit) == 0 ? 1 : 0;
  word |= bit;
}

void RowSet::list(std::span<std::int64_t> out) const {
  std::size_t n = 0;
  for (std::size_t w = 0; w < words_.size(); ++w) {
    for (std::uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
      out[n++] = static_cast<std::int64_t>(w) * kWordBits + std::countr_zero(bits);
    }
  }
}

TouchedRows::TouchedRows(std::int64_t rows, std::int64_t most, std::optional<Base> base,
                         std::span<const std::int64_t> touched)
    : rows_(rows), most_(most), base_(base) {
  under_way_.reserve(kAttempts + 1);
  if (most_ == 0) return;
  for (std::size_t i = 0; i <= kAttempts; ++i) sets_.emplace_back(rows);
  for (std::size_t i = 1; i <= kAttempts; ++i) free_.push_back(i);
  if (!base_) return;
  for (const std::int64_t row : touched) {
    PL_CHECK(row >= 0 && row < rows_, "touched rows are rows of the table");
    sets_[current_].insert(row);
  }
}

void TouchedRows::touch(std::span<const std::int32_t> rows) {
  if (most_ == 0) return;
  const auto add = [&](std::size_t set) {
    for (const std::int32_t row : rows) {
      if (row >= 0) sets_[set].insert(row);
    }
  };
  if (base_) add(current_);
  for (const auto& attempt : under_way_) {
    if (attempt.set != kNone) add(attempt.set);
  }
}

bool TouchedRows::full_is_due() const {
  if (most_ == 0 || !base_ || differences_ >= most_) return true;
  if (sets_[current_].size() > most_rows(rows_)) return true;
  // Once it is published its prune may remove the base of a difference begun before.
  return std::any_of(under_way_.begin(), under_way_.end(), [](const auto& a) { return a.full; });
}

std::optional<Base> TouchedRows::begin() {
  const bool full = full_is_due();
  Attempt attempt{.full = full, .set = kNone};
  if (full && most_ > 0) {
    PL_CHECK(!free_.empty(), "not more attempts at once than snapshots");
    attempt.set = free_.back();
    free_.pop_back();
    sets_[attempt.set].clear();
  }
  under_way_.push_back(attempt);
  if (full) return {};
  ++differences_;
  return base_;
}

void TouchedRows::published(const Base& id) {
  PL_CHECK(!under_way_.empty(), "an attempt ends once");
  const Attempt attempt = under_way_.front();
  under_way_.erase(under_way_.begin());
  if (attempt.set == kNone) return;
  free_.push_back(std::exchange(current_, attempt.set));
  base_ = id;
  differences_ = 0;
}

void TouchedRows::failed(bool base_lost) {
  PL_CHECK(!under_way_.empty(), "an attempt ends once");
  const Attempt attempt = under_way_.front();
  under_way_.erase(under_way_.begin());
  if (attempt.set != kNone) free_.push_back(attempt.set);
  if (!attempt.full) --differences_;
  if (base_lost) base_.reset();
}

std::size_t TouchedRows::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& set : sets_) bytes += set.memory_bytes();
  return bytes;
}

}  // namespace paceline::checkpoint
