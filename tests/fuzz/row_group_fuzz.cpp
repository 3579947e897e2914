// The row group reader: any file gives an error or rows that can be cut into batches.
#include <limits>

#include "data/source.hpp"
#include "features/batch.hpp"
#include "fuzz/parquet_input.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace paceline;
using features::RowBlock;
using features::Shape;

// A run would not load larger blocks within data.memory_limit.
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostRows = std::int64_t{1} << 20;

void check_offsets(const std::vector<std::int64_t>& offsets, std::int64_t rows) {
  PL_CHECK(static_cast<std::int64_t>(offsets.size()) == rows + 1, "an end for every row");
  PL_CHECK(offsets.front() == 0, "lists start at 0");
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    PL_CHECK(offsets[r] <= offsets[r + 1], "lists in order");
  }
}

void check_block(const features::Schema& schema, const RowBlock& block) {
  check_offsets(block.history_offsets, block.rows);
  check_offsets(block.candidate_offsets, block.rows);
  PL_CHECK(block.columns.size() == schema.columns().size(), "every column");
  for (std::size_t c = 0; c < block.columns.size(); ++c) {
    const auto& column = schema.columns()[c];
    const std::int64_t count = column.shape == Shape::kScalar ? block.rows
                               : column.shape == Shape::kHistoryList
                                   ? block.history_offsets.back()
                                   : block.candidate_offsets.back();
    const auto& values = block.columns[c];
    const auto found =
        column.element == features::Element::kFloat ? values.floats.size() : values.ints.size();
    PL_CHECK(static_cast<std::int64_t>(found) >= count, "a value for every element");
  }
  std::int64_t last = -1;
  for (const auto& bad : block.bad_rows) {
    PL_CHECK(bad.row > last && bad.row < block.rows && !bad.why.empty(), "bad rows in order");
    last = bad.row;
  }
}

// Every good row fits a batch of its own.
void cut(const features::Schema& schema, const RowBlock& block) {
  static const features::BatchLayout layout(
      schema, {.examples = 4, .tokens = 64, .history_len = 8, .candidates = 4});
  static features::Batch batch(layout);
  features::BatchCutter cutter(schema, layout);
  auto bad = block.bad_rows.begin();
  bool begun = false;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    if (bad != block.bad_rows.end() && bad->row == row) {
      ++bad;
      continue;
    }
    if (begun && cutter.append(block, row)) continue;
    cutter.begin(batch);
    begun = true;
    PL_CHECK(cutter.append(block, row), "a row fits an empty batch");
  }
}

void read_all(const std::string& path, std::int64_t max_bad_rows) {
  const auto& schema = fuzz::seed_schema();
  const auto source = data::open_parquet({path}, schema, {.max_bad_rows = max_bad_rows});
  if (!source) return;
  RowBlock block;
  for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
    const auto& info = (*source)->blocks()[b];
    PL_CHECK(info.rows >= 0, "a count of rows");
    if (info.rows > kMostRows || info.bytes > kMostBytes) continue;
    if (!(*source)->read(static_cast<std::int64_t>(b), block)) continue;
    check_block(schema, block);
    PL_CHECK(static_cast<std::int64_t>(block.bad_rows.size()) <= max_bad_rows, "bounded skips");
    cut(schema, block);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = fuzz::as_file(data, size);
  read_all(path, 0);
  read_all(path, std::numeric_limits<std::int64_t>::max());
  return 0;
}
