#include "data/inspect_tally.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace paceline::data {
namespace {

std::int64_t bytes_of(const features::RowBlock& block) {
  std::size_t bytes =
      (block.history_offsets.size() + block.candidate_offsets.size()) * sizeof(std::int64_t);
  for (const auto& c : block.columns) {
    bytes += c.ints.size() * sizeof(std::int64_t) + c.floats.size() * sizeof(float);
  }
  return static_cast<std::int64_t>(bytes);
}

// Bin of a length: 0, 1, 2-3, 4-7, ...
std::size_t bin_of(std::int64_t length) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
}

}  // namespace

void LengthCounts::add(std::int64_t length, std::int64_t rows) {
  const auto l = static_cast<std::size_t>(length);
  if (l < kDense) {
    dense_[l] += rows;
  } else {
    sparse_[length] += rows;
  }
}

void LengthCounts::merge(const LengthCounts& other) {
  for (std::size_t l = 0; l < kDense; ++l) dense_[l] += other.dense_[l];
  for (const auto& [length, rows] : other.sparse_) sparse_[length] += rows;
}

LengthReport LengthCounts::report() const {
  std::map<std::int64_t, std::int64_t> all = sparse_;
  for (std::size_t l = 0; l < kDense; ++l) {
    if (dense_[l] > 0) all[static_cast<std::int64_t>(l)] = dense_[l];
  }
  LengthReport r;
  if (all.empty()) return r;
  r.min = all.begin()->first;
  r.max = all.rbegin()->first;
  r.bins.resize(bin_of(r.max) + 1, 0);
  for (const auto& [length, rows] : all) {
    r.rows += rows;
    r.total += length * rows;
    r.bins[bin_of(length)] += rows;
  }
  // The smallest length that this share of rows does not exceed.
  const auto percentile = [&](std::int64_t percent) {
    std::int64_t below = 0;
    for (const auto& [length, rows] : all) {
      below += rows;
      if (below * 100 >= r.rows * percent) return length;
    }
    return r.max;
  };
  r.p50 = percentile(50);
  r.p90 = percentile(90);
  r.p99 = percentile(99);
  return r;
}

Tally::Tally(const features::Schema& schema, const features::BatchLayout& layout,
             const std::vector<std::string>& files, std::int64_t max_listed)
    : schema_(schema),
      layout_(layout),
      files_(files),
      max_listed_(static_cast<std::size_t>(std::max<std::int64_t>(0, max_listed))),
      batch_(layout),
      cutter_(schema, layout),
      action_candidates_(64, 0),
      action_rows_(64, 0) {}

void Tally::refuse(const BlockPlace& place, std::int64_t row, std::int64_t rows,
                   const std::string& why) {
  refused_rows_ += rows;
  count_reason(kind_of(why, files_[place.file]), {rows, row < 0 ? 1 : 0, {place, row, why}});
  if (refusals_.size() < max_listed_) refusals_.push_back({place, row, why});
}

void Tally::count_reason(const RefusalKind& kind, const Reason& more) {
  const auto [at, fresh] = by_reason_.try_emplace(kind, more);
  if (fresh) return;
  at->second.rows += more.rows;
  at->second.row_groups += more.row_groups;
  if (more.first < at->second.first) at->second.first = more.first;
}

void Tally::refuse_block(const BlockPlace& place, std::int64_t rows, const std::string& why) {
  ++refused_blocks_;
  ++blocks_;
  rows_ += rows;
  refuse(place, -1, rows, why);
}

void Tally::add(const features::RowBlock& block, const BlockPlace& place) {
  rows_ += block.rows;
  ++blocks_;
  largest_block_ = std::max(largest_block_, bytes_of(block));
  auto bad = block.bad_rows.begin();
  for (std::int64_t row = 0; row < block.rows; ++row) {
    if (bad != block.bad_rows.end() && bad->row == row) {
      refuse(place, place.first_row + row, 1, bad->why);
      ++bad;
    } else {
      add_row(block, row, place);
    }
  }
}

void Tally::add_row(const features::RowBlock& block, std::int64_t row, const BlockPlace& place) {
  const auto r = static_cast<std::size_t>(row);
  history_.add(block.history_offsets[r + 1] - block.history_offsets[r]);
  candidates_.add(block.candidate_offsets[r + 1] - block.candidate_offsets[r]);
  const auto value = [&](int column) {
    return block.columns[static_cast<std::size_t>(column)].ints[r];
  };
  users_.add(value(schema_.user_column()));
  if (schema_.time_column() != features::kNoColumn) {
    const std::int64_t time = value(schema_.time_column());
    first_time_ = has_time_ ? std::min(first_time_, time) : time;
    last_time_ = has_time_ ? std::max(last_time_, time) : time;
    has_time_ = true;
  }
  if (schema_.actions_column() != features::kNoColumn) add_actions(block, row);
  const std::int64_t tokens = cutter_.tokens_of(block, row);
  if (tokens > layout_.limits().tokens) {
    refuse(place, place.first_row + row, 1,
           fmt::format("an example of {} tokens, longer than batch.tokens = {}", tokens,
                       layout_.limits().tokens));
  } else {
    cut(block, row);
  }
}

void Tally::add_actions(const features::RowBlock& block, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  const auto& masks = block.columns[static_cast<std::size_t>(schema_.actions_column())].ints;
  std::uint64_t any = 0;
  for (auto c = block.candidate_offsets[r]; c < block.candidate_offsets[r + 1]; ++c) {
    auto bits = static_cast<std::uint64_t>(masks[static_cast<std::size_t>(c)]);
    any |= bits;
    for (; bits != 0; bits &= bits - 1) {
      ++action_candidates_[static_cast<std::size_t>(std::countr_zero(bits))];
    }
  }
  bits_ |= any;
  for (; any != 0; any &= any - 1) ++action_rows_[static_cast<std::size_t>(std::countr_zero(any))];
}

// The very code that training cuts with says what it would leave out.
void Tally::cut(const features::RowBlock& block, std::int64_t row) {
  if (begun_ && cutter_.append(block, row)) return;
  finish();
  cutter_.begin(batch_);
  begun_ = true;
  PL_CHECK(cutter_.append(block, row), "a row within batch.tokens fits an empty batch");
}

void Tally::finish() {
  if (begun_) cuts_ += batch_.cuts();
  begun_ = false;
}

void Tally::merge(const Tally& other) {
  history_.merge(other.history_);
  candidates_.merge(other.candidates_);
  users_.merge(other.users_);
  for (std::size_t b = 0; b < 64; ++b) {
    action_candidates_[b] += other.action_candidates_[b];
    action_rows_[b] += other.action_rows_[b];
  }
  bits_ |= other.bits_;
  if (other.has_time_) {
    first_time_ = has_time_ ? std::min(first_time_, other.first_time_) : other.first_time_;
    last_time_ = has_time_ ? std::max(last_time_, other.last_time_) : other.last_time_;
    has_time_ = true;
  }
  rows_ += other.rows_;
  blocks_ += other.blocks_;
  largest_block_ = std::max(largest_block_, other.largest_block_);
  cuts_ += other.cuts_;
  refusals_.insert(refusals_.end(), other.refusals_.begin(), other.refusals_.end());
  for (const auto& [kind, reason] : other.by_reason_) count_reason(kind, reason);
  refused_rows_ += other.refused_rows_;
  refused_blocks_ += other.refused_blocks_;
}

void Tally::report_refused(Inspection& out) const {
  const auto refusal = [&](const Place& place) {
    return Refusal{files_[place.block.file], place.block.row_group, place.row, place.why};
  };
  out.refused_rows += refused_rows_;
  out.refused_blocks += refused_blocks_;
  for (const auto& [kind, reason] : by_reason_) {
    const auto known = std::find_if(out.by_reason.begin(), out.by_reason.end(),
                                    [&k = kind](const auto& r) { return r.kind == k; });
    if (known == out.by_reason.end()) {
      out.by_reason.push_back({kind, reason.rows, reason.row_groups, 0, refusal(reason.first)});
    } else {
      known->rows += reason.rows;
      known->row_groups += reason.row_groups;
    }
  }
  std::sort(out.by_reason.begin(), out.by_reason.end(),
            [](const auto& a, const auto& b) { return a.kind < b.kind; });
  auto sorted = refusals_;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& place : sorted) {
    if (out.refusals.size() >= max_listed_) break;
    out.refusals.push_back(refusal(place));
  }
}

void Tally::report(Inspection& out) const {
  out.rows_read = rows_;
  out.blocks_read = blocks_;
  out.largest_block_bytes = largest_block_;
  out.history = history_.report();
  out.candidates = candidates_.report();
  for (const auto& action : schema_.actions()) {
    if (schema_.actions_column() == features::kNoColumn) break;
    const auto b = static_cast<std::size_t>(action.bit);
    out.actions.push_back({action.name, action.bit, action_candidates_[b], action_rows_[b]});
  }
  out.undeclared_bits = bits_ & ~schema_.action_mask();
  out.users = users_.estimate();
  out.users_exact = users_.exact();
  out.has_time = has_time_;
  out.first_time = first_time_;
  out.last_time = last_time_;
  out.cuts = cuts_;
  report_refused(out);
}

}  // namespace paceline::data
