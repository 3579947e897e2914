// Levels become list boundaries, and rows that cannot be used are noted. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/parquet_column.hpp"
#include "data/parquet_page.hpp"

namespace paceline::data {

enum class RowFault : std::uint8_t {
  kNull,          // where a value or a list must be
  kNullInList,    // an element
  kOtherLength,   // than the lists of the columns of the same side: found, expected
  kNoCandidates,  // an empty list of them
  kNotFinite,     // value
  kTooManyBools,  // a mask of more than 64
};

struct RowIssue {
  std::int64_t row = 0;  // within the block
  int column = 0;        // of the schema
  RowFault fault = RowFault::kNull;
  std::int64_t found = 0, expected = 0;
  float value = 0.0F;
};
using RowIssues = std::vector<RowIssue>;

// A row has one issue for each column, however many of its elements are at fault.
inline void add_issue(RowIssues& issues, const RowIssue& issue) {
  if (!issues.empty() && issues.back().row == issue.row && issues.back().column == issue.column) {
    return;
  }
  issues.push_back(issue);
}

// "column dwell, row 17 (rows count from 0): found nan, ..."; `first_row` is that of the block
// within its file.
std::string issue_text(const RowIssue& issue, const features::Column& column,
                       std::int64_t first_row);

// What a thread keeps between columns, so that nothing is allocated for each.
struct LevelScratch {
  std::vector<std::uint64_t> starts, full, empty;
  std::vector<std::uint8_t> rep, def;
};

// Takes the pages of a column chunk one after the other and says how many values each holds, where
// the null elements are, and where the lists begin. Null lists count as empty, null elements as
// elements; both are noted as issues.
class RowCursor {
 public:
  // `offsets` of a list column: [rows + 1], filled by the end. `index` is the column's.
  RowCursor(const ParquetColumn& column, int index, std::int64_t rows,
            std::vector<std::int64_t>& offsets, LevelScratch& scratch, RowIssues& issues);

  struct Taken {
    std::int64_t values = 0;    // stored in the page
    std::int64_t elements = 0;  // with the nulls among them
  };
  // Errors: kCorruptData (levels that make no rows, more rows than declared).
  Result<Taken> take(const PageParts& page);
  // Null elements of the page taken last, counted from its first element.
  const std::vector<std::int64_t>& nulls() const { return nulls_; }
  // All rows must be there.
  Result<void> finish();

  std::int64_t elements() const { return elements_; }
  std::int64_t row() const { return row_; }  // the last begun; -1 before the first

  // For readers that walk levels themselves.
  Result<void> begin_row();
  void add_element() { ++elements_; }
  void note(RowFault fault, std::int64_t row);

 private:
  Result<Taken> take_scalars(const PageParts& page);
  Result<Taken> take_lists(const PageParts& page);
  Result<Taken> take_each(const PageParts& page);
  Result<void> take_starts(std::int64_t count);
  Error more_rows() const;

  const ParquetColumn& column_;
  int index_;
  std::int64_t rows_;
  std::vector<std::int64_t>& offsets_;
  LevelScratch& scratch_;
  RowIssues& issues_;
  std::vector<std::int64_t> nulls_;
  std::int64_t row_ = -1;
  std::int64_t elements_ = 0;
};

}  // namespace paceline::data
