#include "data/arrow_decode.hpp"

#include <arrow/table.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>

#include <memory>
#include <utility>

#include "core/clock.hpp"
#include "data/cpu_clock.hpp"
#include "data/dataset_files.hpp"
#include "data/parquet_column.hpp"
#include "data/parquet_file.hpp"

namespace paceline::data {
namespace {

Error failed(const DatasetFile& file, const std::string& why) {
  return Error(Code::kCorruptData, fmt::format("{}: {}", file.path, why));
}

Result<void> decode_file(const DatasetFile& file, const features::Schema& schema,
                         ArrowDecode& total) {
  PL_TRY(auto parquet_reader, open_file(file, nullptr));
  const auto footer = parquet_reader->metadata();
  std::vector<int> leaves;
  for (const auto& column : schema.columns()) {
    auto matched = match_column(*footer->schema(), column);
    if (!matched) return failed(file, matched.error().message());
    leaves.push_back(matched->leaf);
  }
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_pre_buffer(false);
  auto reader =
      parquet::arrow::FileReader::Make(memory_pool(), std::move(parquet_reader), properties);
  if (!reader.ok()) return failed(file, reader.status().message());
  const auto start = Clock::now();
  const double cpu = process_cpu_seconds();
  for (int g = 0; g < (*reader)->num_row_groups(); ++g) {
    const auto table = (*reader)->ReadRowGroup(g, leaves);
    if (!table.ok()) return failed(file, table.status().message());
    total.rows += (*table)->num_rows();
  }
  total.cpu_s += process_cpu_seconds() - cpu;
  total.wall_s += seconds_since(start);
  return {};
}

}  // namespace

Result<ArrowDecode> decode_with_arrow(const std::vector<std::string>& paths,
                                      const features::Schema& schema) {
  PL_TRY(const auto files, find_files(paths));
  ArrowDecode total;
  for (const auto& file : files) {
    PL_TRY_VOID(guarded([&] { return decode_file(file, schema, total); }));
  }
  return total;
}

}  // namespace paceline::data
