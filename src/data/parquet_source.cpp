#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <fmt/format.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <xxhash.h>

#include <algorithm>
#include <new>
#include <utility>

#include "data/dataset_files.hpp"
#include "data/parquet_column.hpp"
#include "data/parquet_read.hpp"
#include "data/source.hpp"

namespace paceline::data {
namespace {

using features::Shape;

// Runs `body` and turns what Parquet and Arrow throw into errors.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const parquet::ParquetStatusException& e) {
    const auto status = e.status();
    return Error(status.IsOutOfMemory() ? Code::kOutOfMemory
                 : status.IsIOError()   ? Code::kIo
                                        : Code::kCorruptData,
                 status.message());
  } catch (const parquet::ParquetException& e) {
    return Error(Code::kCorruptData, e.what());
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory, "no memory for its values");
  } catch (const std::exception& e) {
    return Error(Code::kCorruptData, e.what());
  }
}

Error at(Error error, const std::string& where) {
  return Error(error.code(), fmt::format("{}: {}", where, error.message()), error.at());
}

// Sanitizers follow memory of the system's allocator only.
arrow::MemoryPool* memory_pool() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return arrow::system_memory_pool();
#else
  return arrow::default_memory_pool();
#endif
}

parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties(memory_pool());
  properties.set_page_checksum_verification(true);
  return properties;
}

struct OpenedFile {
  DatasetFile file;
  std::shared_ptr<parquet::FileMetaData> footer;
  std::vector<ParquetColumn> columns;  // parallel to the schema's
};

struct Block {
  std::size_t file = 0;
  int row_group = 0;
  std::int64_t first_row = 0;  // within the file
};

Result<std::unique_ptr<parquet::ParquetFileReader>> open_file(
    const DatasetFile& file, const std::shared_ptr<parquet::FileMetaData>& footer) {
  auto stream = arrow::io::ReadableFile::Open(file.path, memory_pool());
  if (!stream.ok()) {
    return Error(Code::kIo, fmt::format("{}: {}", file.path, stream.status().message()));
  }
  auto opened = guarded([&]() -> Result<std::unique_ptr<parquet::ParquetFileReader>> {
    return parquet::ParquetFileReader::Open(*stream, reader_properties(), footer);
  });
  if (!opened) {
    return Error(opened.error().code(),
                 fmt::format("{} ({} bytes): not a complete Parquet file: {}", file.path,
                             file.bytes, opened.error().message()));
  }
  return opened;
}

// Everything that reads use, shared so that a read that hangs may outlive its source.
struct Files {
  std::vector<OpenedFile> files;
  std::vector<Block> places;
  std::vector<BlockInfo> blocks;
  std::vector<FileInfo> infos;
  std::int64_t rows = 0;
  std::uint64_t fingerprint = 0;
  std::int64_t max_bad_rows = 0;

  Result<void> add(const DatasetFile& file, const features::Schema& schema);
  Result<void> read(std::int64_t index, features::RowBlock& out) const;
  static Result<void> read_columns(const OpenedFile& file, parquet::RowGroupReader& group,
                                   features::RowBlock& out, RowIssues& issues);
  // Refuses more bad rows than allowed.
  Result<void> list_bad_rows(const OpenedFile& file, const Block& place, RowIssues issues,
                             features::RowBlock& out) const;
};

Result<void> Files::add(const DatasetFile& file, const features::Schema& schema) {
  if (file.bytes == 0) {
    return Error(Code::kCorruptData,
                 fmt::format("{}: found 0 bytes, allowed is a Parquet file", file.path));
  }
  PL_TRY(auto reader, open_file(file, nullptr));
  OpenedFile opened{file, reader->metadata(), {}};
  for (const auto& column : schema.columns()) {
    auto matched = match_column(*opened.footer->schema(), column);
    if (!matched) return at(std::move(matched.error()), file.path);
    opened.columns.push_back(std::move(*matched));
  }
  std::int64_t first_row = 0;
  for (int g = 0; g < opened.footer->num_row_groups(); ++g) {
    const std::int64_t n = opened.footer->RowGroup(g)->num_rows();
    if (n < 0 || n > opened.footer->num_rows() - first_row) {
      return Error(Code::kCorruptData,
                   fmt::format("{}, row group {}: found {} rows, but the file declares {} in all",
                               file.path, g, n, opened.footer->num_rows()));
    }
    places.push_back({files.size(), g, first_row});
    blocks.push_back({n, rows, fmt::format("{}, row group {}", file.path, g), 0});
    first_row += n;
    rows += n;
  }
  files.push_back(std::move(opened));
  return {};
}

void note_no_candidates(const std::vector<std::int64_t>& offsets, int column, RowIssues& issues) {
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    if (offsets[r] != offsets[r + 1]) continue;
    issues.push_back({static_cast<std::int64_t>(r), column, RowFault::kNoCandidates});
  }
}

// Over relative path, size and the row count of every block, each preceded by its length or count.
std::uint64_t digest(const Files& dataset) {
  std::string bytes;
  const auto add_number = [&bytes](std::int64_t n) {
    bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
  };
  std::size_t block = 0;
  for (std::size_t f = 0; f < dataset.files.size(); ++f) {
    const auto& opened = dataset.files[f];
    const auto& relative = opened.file.relative;
    add_number(static_cast<std::int64_t>(relative.size()));
    bytes += relative;
    add_number(opened.file.bytes);
    add_number(opened.footer->num_row_groups());
    for (; block < dataset.places.size() && dataset.places[block].file == f; ++block) {
      add_number(dataset.blocks[block].rows);
    }
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

Result<void> Files::read(std::int64_t index, features::RowBlock& out) const {
  PL_CHECK(index >= 0 && index < static_cast<std::int64_t>(blocks.size()), "a block of the source");
  const auto b = static_cast<std::size_t>(index);
  const Block& place = places[b];
  const OpenedFile& file = files[place.file];
  out.rows = blocks[b].rows;
  out.first_row = blocks[b].first_row;
  out.columns.resize(file.columns.size());
  out.bad_rows.clear();
  const auto ends = static_cast<std::size_t>(out.rows) + 1;
  out.history_offsets.assign(ends, 0);
  out.candidate_offsets.assign(ends, 0);
  RowIssues issues;
  PL_TRY(auto reader, open_file(file.file, file.footer));
  auto done = guarded([&]() -> Result<void> {
    return read_columns(file, *reader->RowGroup(place.row_group), out, issues);
  });
  if (done && !issues.empty()) done = list_bad_rows(file, place, std::move(issues), out);
  if (!done) return at(std::move(done.error()), blocks[b].where);
  return {};
}

Result<void> Files::read_columns(const OpenedFile& file, parquet::RowGroupReader& group,
                                 features::RowBlock& out, RowIssues& issues) {
  bool history_known = false;
  bool candidates_known = false;
  for (std::size_t c = 0; c < file.columns.size(); ++c) {
    const ParquetColumn& column = file.columns[c];
    const bool history = column.wanted.shape == Shape::kHistoryList;
    const bool candidates = column.wanted.shape == Shape::kCandidateList;
    ColumnTarget to{static_cast<int>(c), out.rows};
    to.first = (history && !history_known) || (candidates && !candidates_known);
    to.offsets = history ? &out.history_offsets : &out.candidate_offsets;
    to.values = &out.columns[c];
    auto done = guarded([&] { return read_column(group, column, to, issues); });
    if (!done) return at(std::move(done.error()), "column " + column.wanted.name);
    history_known = history_known || history;
    if (candidates && to.first) note_no_candidates(out.candidate_offsets, to.index, issues);
    candidates_known = candidates_known || candidates;
  }
  return {};
}

Result<void> Files::list_bad_rows(const OpenedFile& file, const Block& place, RowIssues issues,
                                  features::RowBlock& out) const {
  // The first reason of a row is that of the first column.
  std::stable_sort(issues.begin(), issues.end(),
                   [](const RowIssue& a, const RowIssue& b) { return a.row < b.row; });
  issues.erase(std::unique(issues.begin(), issues.end(),
                           [](const RowIssue& a, const RowIssue& b) { return a.row == b.row; }),
               issues.end());
  const auto text = [&](const RowIssue& issue) {
    return issue_text(issue, file.columns[static_cast<std::size_t>(issue.column)].wanted,
                      place.first_row);
  };
  const auto found = static_cast<std::int64_t>(issues.size());
  if (found > max_bad_rows) {
    const auto allowed = fmt::format("; {} rows of this row group cannot be used, allowed are {}",
                                     found, max_bad_rows);
    return Error(Code::kCorruptData, text(issues.front()) + (max_bad_rows > 0 ? allowed : ""));
  }
  const std::string where = fmt::format("{}, row group {}: ", file.file.path, place.row_group);
  for (const auto& issue : issues) out.bad_rows.push_back({issue.row, where + text(issue)});
  return {};
}

class ParquetSource final : public Source {
 public:
  explicit ParquetSource(std::shared_ptr<const Files> files) : files_(std::move(files)) {}

  const std::vector<BlockInfo>& blocks() const override { return files_->blocks; }
  std::int64_t rows() const override { return files_->rows; }
  std::uint64_t fingerprint() const override { return files_->fingerprint; }
  const std::vector<FileInfo>& files() const override { return files_->infos; }

  Result<void> read(std::int64_t index, features::RowBlock& out) const override {
    const auto files = files_;  // see Files
    return files->read(index, out);
  }

 private:
  std::shared_ptr<const Files> files_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_parquet(const std::vector<std::string>& paths,
                                             const features::Schema& schema,
                                             const SourceOptions& options) {
  PL_TRY(const auto found, find_files(paths));
  auto files = std::make_shared<Files>();
  files->max_bad_rows = options.max_bad_rows;
  for (const auto& file : found) PL_TRY_VOID(files->add(file, schema));
  files->fingerprint = digest(*files);
  return std::unique_ptr<Source>(std::make_unique<ParquetSource>(std::move(files)));
}

}  // namespace paceline::data
