// A handful of rows in a Parquet file, for tests of what can be read. For test programs only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/source.hpp"
#include "data/testing/impressions.hpp"
#include "data/testing/schemas.hpp"

namespace paceline::data::testing {

using Int = arrow::Int64Builder;

inline constexpr const char* kSmall = R"(
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "h"
candidate_column = "c"
rows = 100
[[features]]
name = "value"
scope = "history"
kind = "number"
history_column = "v"
[[actions]]
name = "like"
bit = 1
)";

struct Fields {
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns;

  std::shared_ptr<arrow::Array>& operator[](const std::string& name) {
    for (auto& [n, array] : columns) {
      if (n == name) return array;
    }
    return columns.emplace_back(name, nullptr).second;
  }
  std::shared_ptr<arrow::Table> table() const {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const auto& [name, array] : columns) {
      if (!array) continue;
      fields.push_back(arrow::field(name, array->type()));
      arrays.push_back(array);
    }
    return arrow::Table::Make(arrow::schema(fields), arrays);
  }
};

// Three rows of kSmall: histories of 2, 0 and 1 events, candidates 1, 2 and 1.
inline Fields small_fields() {
  Fields f;
  f["user_id"] = array_of<Int>(std::vector<std::int64_t>{1, -2, 3});
  f["h"] = lists_of<Int>({2, 0, 1}, std::vector<std::int64_t>{10, 11, 12});
  f["v"] = lists_of<arrow::FloatBuilder>({2, 0, 1}, std::vector<float>{.5F, 1.5F, 2.5F});
  f["c"] = lists_of<Int>({1, 2, 1}, std::vector<std::int64_t>{20, 21, 22, 23});
  f["candidate_actions"] = lists_of<Int>({1, 2, 1}, std::vector<std::int64_t>{1, 2, 3, 0});
  return f;
}

class SmallRowsTest : public ::testing::Test {
 protected:
  std::string write(const Fields& fields, std::int64_t row_group_rows = 100) {
    const std::string path = dir_.file("rows.parquet");
    write_parquet(path, *fields.table(), row_group_rows);
    return path;
  }
  // With other settings of the writer.
  std::string write_with(const Fields& fields,
                         const std::shared_ptr<parquet::WriterProperties>& properties) {
    const std::string path = dir_.file("rows.parquet");
    write_parquet(path, *fields.table(), 1000, properties);
    return path;
  }
  // The error of opening, or of reading all blocks.
  Error failure(const std::vector<std::string>& paths, const std::string& toml = kSmall) {
    const auto schema = schema_of(toml);
    const auto source = open_parquet(paths, schema);
    if (!source) return source.error();
    features::RowBlock block;
    for (std::size_t b = 0; b < (*source)->blocks().size(); ++b) {
      if (auto read = (*source)->read(static_cast<std::int64_t>(b), block); !read) {
        return read.error();
      }
    }
    return Error(Code::kInternal, "no failure");
  }
  Error failure_of(const Fields& fields) { return failure({write(fields, 2)}); }

  const features::ColumnValues& column(const features::RowBlock& block, const std::string& name) {
    for (std::size_t c = 0; c < schema_.columns().size(); ++c) {
      if (schema_.columns()[c].name == name) return block.columns[c];
    }
    PL_CHECK(false, name);
    return block.columns[0];
  }
  features::RowBlock read_first(const Fields& fields) { return read_file(write(fields)); }
  // The first row group; up to `max_bad_rows` of its rows may be bad.
  features::RowBlock read_file(const std::string& path, std::int64_t max_bad_rows = 0) {
    const auto source = open_parquet({path}, schema_, {max_bad_rows});
    PL_CHECK(source.ok(), source.error().text());
    features::RowBlock block;
    const auto read = (*source)->read(0, block);
    PL_CHECK(read.ok(), read.error().text());
    return block;
  }

  TempDir dir_;
  features::Schema schema_ = schema_of(kSmall);
};

}  // namespace paceline::data::testing
