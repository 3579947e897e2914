// Impression datasets for tests: written with Arrow C++, the same bytes for the same options.
// For test programs only; failures abort.
#pragma once

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/rng.hpp"

namespace paceline::data::testing {

// A directory that is gone with the object.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "paceline-XXXXXX").string();
    PL_CHECK(::mkdtemp(name.data()) != nullptr, "a temporary directory");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct ImpressionOptions {
  std::int64_t rows = 100;
  std::int64_t files = 1;
  std::int64_t row_group_rows = 16;
  std::uint64_t seed = 1;
  std::int64_t users = 50;
  std::int64_t items = 200;
  std::int64_t min_history = 0;
  std::int64_t max_history = 12;
  std::int64_t max_candidates = 6;  // at least 1 each
};

// [[features]] and [[actions]] that read what write_impressions() writes: every kind and scope.
inline std::string impression_features() {
  return R"(
[[features]]
name = "user"
scope = "user"
kind = "id"
column = "user_id"
rows = 64
hashes = 2
[[features]]
name = "country"
scope = "user"
kind = "category"
column = "country"
rows = 8
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item_id"
candidate_column = "candidate_item_id"
rows = 256
hashes = 2
[[features]]
name = "done"
scope = "history"
kind = "multi_hot"
history_column = "history_actions"
size = 4
[[features]]
name = "age"
scope = "history"
kind = "bucket"
history_column = "history_time"
minus = "request_time"
boundaries = "log2"
buckets = 16
unit = 60.0
[[features]]
name = "price"
scope = "candidate"
kind = "number"
candidate_column = "candidate_price"
[[actions]]
name = "seen"
bit = 0
train = false
[[actions]]
name = "like"
bit = 1
score = 1.0
[[actions]]
name = "share"
bit = 2
weight = 0.5
)";
}

inline void check(const arrow::Status& status) { PL_CHECK(status.ok(), status.ToString()); }

inline void write_parquet(const std::string& path, const arrow::Table& table,
                          std::int64_t row_group_rows,
                          const std::shared_ptr<parquet::WriterProperties>& properties) {
  auto stream = arrow::io::FileOutputStream::Open(path);
  check(stream.status());
  check(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), *stream, row_group_rows,
                                   properties));
  check((*stream)->Close());
}

inline void write_parquet(const std::string& path, const arrow::Table& table,
                          std::int64_t row_group_rows, int data_page_bytes = 1 << 20) {
  write_parquet(path, table, row_group_rows,
                parquet::WriterProperties::Builder()
                    .compression(parquet::Compression::ZSTD)
                    ->enable_page_checksum()
                    ->data_pagesize(data_page_bytes)
                    ->build());
}

template <typename Builder, typename T>
std::shared_ptr<arrow::Array> array_of(const std::vector<T>& values) {
  Builder builder;
  std::shared_ptr<arrow::Array> array;
  check(builder.AppendValues(values));
  check(builder.Finish(&array));
  return array;
}

// A list column from the length of each row's list.
template <typename Builder, typename T>
std::shared_ptr<arrow::Array> lists_of(const std::vector<std::int64_t>& lengths,
                                       const std::vector<T>& values) {
  std::vector<std::int32_t> offsets{0};
  for (const auto n : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(n));
  auto list = arrow::ListArray::FromArrays(*array_of<arrow::Int32Builder>(offsets),
                                           *array_of<Builder>(values));
  check(list.status());
  return *list;
}

// Rows [first, first + rows) of the dataset that the options describe. Row r belongs to user
// 1 + hash(r) % users; an item is liked more often when its id is even.
inline std::shared_ptr<arrow::Table> impression_table(const ImpressionOptions& o,
                                                      std::int64_t first, std::int64_t rows) {
  const CounterRng rng(o.seed, RngStream::kTest);
  std::vector<std::int64_t> users, times, countries, history_n, candidate_n;
  std::vector<std::int64_t> history_item, history_mask, history_time, item, mask;
  std::vector<float> price;
  const auto draw = [&](std::int64_t row, std::uint64_t what, std::int64_t below) {
    return static_cast<std::int64_t>(
        rng.below(static_cast<std::uint64_t>(below), static_cast<std::uint64_t>(row), what));
  };
  for (std::int64_t r = first; r < first + rows; ++r) {
    const std::int64_t time = 1'700'000'000 + r * 60;
    users.push_back(1 + draw(r, 0, o.users));
    times.push_back(time);
    countries.push_back(draw(r, 1, 8));
    const std::int64_t n = o.min_history + draw(r, 2, o.max_history - o.min_history + 1);
    const std::int64_t c = 1 + draw(r, 3, o.max_candidates);
    history_n.push_back(n);
    candidate_n.push_back(c);
    const auto action = [&](std::uint64_t what, std::int64_t id) {
      const std::int64_t chance = draw(r, what, 100);
      return 1 | (chance < (id % 2 == 0 ? 60 : 15) ? 2 : 0) | (chance < 5 ? 4 : 0);
    };
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = 100 + 2 * static_cast<std::uint64_t>(i);
      history_item.push_back(1 + draw(r, at, o.items));
      history_mask.push_back(action(at + 1, history_item.back()));
      history_time.push_back(time - (n - i) * 1000);
    }
    for (std::int64_t i = 0; i < c; ++i) {
      const auto at = (std::uint64_t{1} << 32) + 3 * static_cast<std::uint64_t>(i);
      item.push_back(1 + draw(r, at, o.items));
      mask.push_back(action(at + 1, item.back()));
      price.push_back(static_cast<float>(draw(r, at + 2, 1000)) / 1000.0F);
    }
  }
  using Int = arrow::Int64Builder;
  const std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns{
      {"user_id", array_of<Int>(users)},
      {"request_time", array_of<Int>(times)},
      {"country", array_of<Int>(countries)},
      {"history_item_id", lists_of<Int>(history_n, history_item)},
      {"history_actions", lists_of<Int>(history_n, history_mask)},
      {"history_time", lists_of<Int>(history_n, history_time)},
      {"candidate_item_id", lists_of<Int>(candidate_n, item)},
      {"candidate_actions", lists_of<Int>(candidate_n, mask)},
      {"candidate_price", lists_of<arrow::FloatBuilder>(candidate_n, price)}};
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays, rows);
}

// Writes part-0000.parquet, ... into `dir` (created); rows are spread evenly over the files.
// Returns the files' paths.
inline std::vector<std::string> write_impressions(const std::filesystem::path& dir,
                                                  const ImpressionOptions& o) {
  std::filesystem::create_directories(dir);
  std::vector<std::string> paths;
  for (std::int64_t f = 0; f < o.files; ++f) {
    const std::int64_t first = o.rows * f / o.files;
    const std::int64_t last = o.rows * (f + 1) / o.files;
    const std::string number = std::to_string(f);
    const std::string name =
        "part-" + std::string(4 - std::min<std::size_t>(4, number.size()), '0') + number;
    paths.push_back((dir / (name + ".parquet")).string());
    write_parquet(paths.back(), *impression_table(o, first, last - first), o.row_group_rows);
  }
  return paths;
}

// Flips bytes in the middle of the first column's pages of one row group, as a bad disk would.
inline void corrupt_row_group(const std::string& path, int row_group) {
  std::int64_t middle = 0;
  {
    const auto reader = parquet::ParquetFileReader::OpenFile(path);
    const auto chunk = reader->metadata()->RowGroup(row_group)->ColumnChunk(0);
    const std::int64_t start =
        chunk->has_dictionary_page() ? chunk->dictionary_page_offset() : chunk->data_page_offset();
    middle = start + chunk->total_compressed_size() / 2;
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::int64_t i = 0; i < 4; ++i) {
    file.seekg(middle + i);
    const int byte = file.get();
    file.seekp(middle + i);
    file.put(static_cast<char>(byte ^ 0x5A));
  }
  PL_CHECK(file.good(), "a file to corrupt");
}

}  // namespace paceline::data::testing
