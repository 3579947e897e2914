#include "data/column_sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/config.hpp"
#include "core/config_text.hpp"
#include "data/parquet_file.hpp"
#include "data/source.hpp"

namespace paceline::data {
namespace {

using features::Element;
using features::Shape;

// The schema that reads these columns and nothing else.
Result<features::Schema> schema_of(const std::vector<features::Column>& columns) {
  std::string toml;
  std::string user;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& column = columns[c];
    const char* scope = column.shape == Shape::kScalar        ? "user"
                        : column.shape == Shape::kHistoryList ? "history"
                                                              : "candidate";
    const char* kind = column.element == Element::kInt64   ? "kind = \"id\"\nrows = 1"
                       : column.element == Element::kFloat ? "kind = \"number\""
                                                           : "kind = \"multi_hot\"\nsize = 64";
    toml += fmt::format("[[features]]\nname = \"f{}\"\nscope = \"{}\"\n{}\ncolumn = {}\n", c, scope,
                        kind, string_text(column.name));
    if (column.shape == Shape::kScalar && column.element == Element::kInt64) user = column.name;
  }
  toml = fmt::format("[data]\nuser_column = {}\nactions_column = \"\\u0001\"\n{}",
                     string_text(user), toml);
  toml += "[[actions]]\nname = \"a\"\nbit = 0\n";
  PL_TRY(auto config, Config::parse(toml, "a sample of columns"));
  PL_TRY(const auto schema, features::Schema::from_config(config));
  return schema.without_labels();
}

void add_ints(const std::vector<std::int64_t>& values, bool mask, ValueSample& out) {
  out.bit_counts.resize(64, 0);
  for (const auto v : values) {
    out.min = std::min(out.min, static_cast<double>(v));
    out.max = std::max(out.max, static_cast<double>(v));
    auto bits = static_cast<std::uint64_t>(v);
    out.bits |= bits;
    if (!mask && out.distinct.size() < ValueSample::kMostDistinct) out.distinct.insert(v);
    for (; bits != 0; bits &= bits - 1) {
      ++out.bit_counts[static_cast<std::size_t>(__builtin_ctzll(bits))];
    }
  }
  out.count += static_cast<std::int64_t>(values.size());
}

void add_floats(const std::vector<float>& values, ValueSample& out) {
  for (const float v : values) {
    out.min = std::min(out.min, static_cast<double>(v));
    out.max = std::max(out.max, static_cast<double>(v));
  }
  const std::size_t room = ValueSample::kMostFloats - out.floats.size();
  const std::size_t n = std::min(room, values.size());
  out.floats.insert(out.floats.end(), values.begin(),
                    values.begin() + static_cast<std::ptrdiff_t>(n));
  out.count += static_cast<std::int64_t>(values.size());
}

std::int64_t longest(const std::vector<std::int64_t>& offsets,
                     const std::vector<features::BadRow>& bad) {
  std::int64_t most = 0;
  auto next_bad = bad.begin();
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    if (next_bad != bad.end() && next_bad->row == static_cast<std::int64_t>(r)) {
      ++next_bad;
      continue;
    }
    most = std::max(most, offsets[r + 1] - offsets[r]);
  }
  return most;
}

}  // namespace

Result<ColumnSample> sample_columns(const DatasetFile& file,
                                    const std::vector<features::Column>& columns) {
  PL_TRY(const auto schema, schema_of(columns));
  const SourceOptions options{.max_bad_rows = std::numeric_limits<std::int64_t>::max()};
  PL_TRY(const auto source, open_parquet_files({file}, schema, options));
  ColumnSample sample;
  features::RowBlock block;
  Error failed(Code::kNotFound, fmt::format("{}: found no rows", file.path));
  for (std::size_t b = 0; b < source->blocks().size() && sample.rows < kSampleRows; ++b) {
    const auto& info = source->blocks()[b];
    if (info.rows == 0) continue;
    if (info.bytes > kMostSampleBytes) {
      failed = Error(Code::kUnavailable, fmt::format("{}: its {} bytes are too many for a sample",
                                                     info.where, info.bytes));
      continue;
    }
    if (auto read = source->read(static_cast<std::int64_t>(b), block); !read) {
      failed = std::move(read.error());
      continue;
    }
    sample.rows += block.rows;
    sample.bad_rows += static_cast<std::int64_t>(block.bad_rows.size());
    sample.longest_history =
        std::max(sample.longest_history, longest(block.history_offsets, block.bad_rows));
    sample.longest_candidates =
        std::max(sample.longest_candidates, longest(block.candidate_offsets, block.bad_rows));
    for (std::size_t c = 0; c < schema.columns().size(); ++c) {
      const auto& column = schema.columns()[c];
      auto& out = sample.columns[column.name];
      if (column.element == Element::kFloat) {
        add_floats(block.columns[c].floats, out);
      } else {
        add_ints(block.columns[c].ints, column.element == Element::kMask, out);
      }
    }
  }
  if (sample.rows == 0) return failed;
  return sample;
}

}  // namespace paceline::data
