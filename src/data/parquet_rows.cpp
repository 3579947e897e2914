#include "data/parquet_rows.hpp"

#include <fmt/format.h>

#include <bit>

namespace paceline::data {
namespace {

std::string what(const RowIssue& issue, const features::Column& column) {
  const bool history = column.shape == features::Shape::kHistoryList;
  switch (issue.fault) {
    case RowFault::kNull:
      return column.shape == features::Shape::kScalar
                 ? "found null, allowed are values"
                 : "found null, allowed is a list (it may be empty)";
    case RowFault::kNullInList:
      return "found a null in the list, allowed are values";
    case RowFault::kOtherLength:
      return fmt::format("its list has {} elements, the other {} columns have {} in this row",
                         issue.found, history ? "history" : "candidate", issue.expected);
    case RowFault::kNoCandidates:
      return "found no candidates, allowed is at least one";
    case RowFault::kNotFinite:
      return fmt::format("found {}, allowed are finite numbers that fit a 32-bit float",
                         issue.value);
    case RowFault::kTooManyBools:
      return "found a list of more than 64 bool, allowed are 64";
  }
  return "";
}

}  // namespace

std::string issue_text(const RowIssue& issue, const features::Column& column,
                       std::int64_t first_row) {
  return fmt::format("column {}, row {} (rows count from 0): {}", column.name,
                     first_row + issue.row, what(issue, column));
}

RowCursor::RowCursor(const ParquetColumn& column, int index, std::int64_t rows,
                     std::vector<std::int64_t>& offsets, LevelScratch& scratch, RowIssues& issues)
    : column_(column),
      index_(index),
      rows_(rows),
      offsets_(offsets),
      scratch_(scratch),
      issues_(issues) {
  if (column.max_rep > 0) offsets.resize(static_cast<std::size_t>(rows) + 1);
}

void RowCursor::note(RowFault fault, std::int64_t row) { add_issue(issues_, {row, index_, fault}); }

Error RowCursor::more_rows() const {
  return Error(Code::kCorruptData, fmt::format("more rows than the {} declared", rows_));
}

Result<RowCursor::Taken> RowCursor::take(const PageParts& page) {
  nulls_.clear();
  return column_.max_rep > 0 ? take_lists(page) : take_scalars(page);
}

Result<RowCursor::Taken> RowCursor::take_scalars(const PageParts& page) {
  const std::int64_t count = page.def.count;
  if (count > rows_ - (row_ + 1)) return more_rows();
  Taken taken{count, count};
  if (column_.max_def > 0) {
    PL_TRY_VOID(bits_where(page.def, column_.max_def, scratch_.full));
    taken.values = count_bits(scratch_.full);
    for (std::int64_t i = 0; taken.values < count && i < count; ++i) {
      if ((scratch_.full[static_cast<std::size_t>(i >> 6)] >> (i & 63) & 1) != 0) continue;
      nulls_.push_back(i);
      note(RowFault::kNull, row_ + 1 + i);
    }
  }
  row_ += count;
  elements_ += count;
  return taken;
}

// Most pages hold nothing but values and empty lists: bitmaps say all about them.
Result<RowCursor::Taken> RowCursor::take_lists(const PageParts& page) {
  const std::int64_t count = page.rep.count;
  if (count == 0) return Taken{};
  PL_TRY_VOID(bits_where(page.rep, 0, scratch_.starts));
  PL_TRY_VOID(bits_where(page.def, column_.max_def, scratch_.full));
  if (row_ < 0 && (scratch_.starts[0] & 1) == 0) {
    return Error(Code::kCorruptData, "starts within a list");
  }
  const std::int64_t values = count_bits(scratch_.full);
  if (values < count) {
    PL_TRY_VOID(bits_where(page.def, column_.list_def - 1, scratch_.empty));
    if (values + count_bits(scratch_.empty) < count) return take_each(page);
  }
  PL_TRY_VOID(take_starts(count));
  return Taken{values, values};
}

Result<void> RowCursor::take_starts(std::int64_t count) {
  for (std::int64_t w = 0; w < bit_words(count); ++w) {
    const std::uint64_t full = scratch_.full[static_cast<std::size_t>(w)];
    std::uint64_t starts = scratch_.starts[static_cast<std::size_t>(w)];
    if (std::popcount(starts) > rows_ - (row_ + 1)) return more_rows();
    while (starts != 0) {
      const std::uint64_t before = (starts & (~starts + 1)) - 1;
      offsets_[static_cast<std::size_t>(++row_)] = elements_ + std::popcount(full & before);
      starts &= starts - 1;
    }
    elements_ += std::popcount(full);
  }
  return {};
}

Result<RowCursor::Taken> RowCursor::take_each(const PageParts& page) {
  PL_TRY_VOID(unpack_levels(page.rep, scratch_.rep));
  PL_TRY_VOID(unpack_levels(page.def, scratch_.def));
  const std::int64_t before = elements_;
  std::int64_t values = 0;
  for (std::size_t i = 0; i < scratch_.def.size(); ++i) {
    const int def = scratch_.def[i];
    if (scratch_.rep[i] == 0) PL_TRY_VOID(begin_row());
    if (def > column_.max_def) return Error(Code::kCorruptData, "levels that do not exist");
    if (def == column_.max_def) {
      ++values;
      ++elements_;
    } else if (def >= column_.list_def) {
      note(RowFault::kNullInList, row_);
      nulls_.push_back(elements_ - before);
      ++elements_;
    } else if (def < column_.list_def - 1) {
      note(RowFault::kNull, row_);
    }
  }
  return Taken{values, elements_ - before};
}

Result<void> RowCursor::begin_row() {
  if (row_ + 1 >= rows_) return more_rows();
  offsets_[static_cast<std::size_t>(++row_)] = elements_;
  return {};
}

Result<void> RowCursor::finish() {
  if (row_ + 1 != rows_) {
    return Error(Code::kCorruptData, fmt::format("{} rows where {} are declared", row_ + 1, rows_));
  }
  if (column_.max_rep > 0) offsets_[static_cast<std::size_t>(rows_)] = elements_;
  return {};
}

}  // namespace paceline::data
