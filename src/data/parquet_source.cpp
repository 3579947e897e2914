#include <arrow/io/caching.h>
#include <fmt/format.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "data/dataset_files.hpp"
#include "data/parquet_column.hpp"
#include "data/parquet_file.hpp"
#include "data/parquet_read.hpp"
#include "data/source.hpp"
#include "pipeline/task_pool.hpp"

namespace paceline::data {
namespace {

using features::Shape;

// Files whose footers are read at once: locally as many as a disk likes, remotely many wait.
constexpr std::int64_t kLocalOpeners = 4;
constexpr std::int64_t kRemoteOpeners = 16;

struct RowGroup {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // decoded, at most
};

struct OpenedFile {
  DatasetFile file;
  std::shared_ptr<parquet::FileMetaData> footer;
  std::vector<ParquetColumn> columns;  // parallel to the schema's
  std::vector<RowGroup> groups;
};

struct Block {
  std::size_t file = 0;
  int row_group = 0;
  std::int64_t first_row = 0;  // within the file
};

// Everything that reads use, shared so that a read that hangs may outlive its source.
struct Files {
  std::vector<OpenedFile> files;
  std::vector<Block> places;
  std::vector<BlockInfo> blocks;
  std::vector<FileInfo> infos;
  std::int64_t rows = 0;
  // Relative path, size and the row count of every block, each preceded by its length or count.
  std::string fingerprinted;
  std::uint64_t fingerprint = 0;
  std::int64_t max_bad_rows = 0;

  void add(OpenedFile opened);
  Result<void> read(std::int64_t index, features::RowBlock& out) const;
  static Result<void> read_columns(const OpenedFile& file, parquet::RowGroupReader& group,
                                   features::RowBlock& out, RowIssues& issues);
  // Refuses more bad rows than allowed.
  Result<void> list_bad_rows(const OpenedFile& file, const Block& place, RowIssues issues,
                             features::RowBlock& out) const;
};

void add_number(std::string& bytes, std::int64_t n) {
  bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
}

// What a row group takes as a RowBlock at most: a footer counts the nulls and the empty lists too.
std::int64_t decoded_bytes(const parquet::RowGroupMetaData& group,
                           const std::vector<ParquetColumn>& columns) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // of a footer that lies
  std::int64_t bytes = 2 * std::min(group.num_rows(), kMost) * 8 + 16;
  for (const auto& c : columns) {
    const std::int64_t values = group.ColumnChunk(c.leaf)->num_values();
    const std::int64_t size = c.wanted.element == features::Element::kFloat ? 4 : 8;
    bytes = std::min(kMost, bytes + std::clamp<std::int64_t>(values, 0, kMost / size) * size);
  }
  return bytes + bytes / kRoomPart;
}

// Every row has a value, a null or an empty list in each column: more rows than that are none.
Result<void> check_values(const parquet::RowGroupMetaData& group,
                          const std::vector<ParquetColumn>& columns, std::int64_t rows) {
  for (const auto& c : columns) {
    const std::int64_t values = group.ColumnChunk(c.leaf)->num_values();
    if (values >= rows) continue;
    return Error(Code::kCorruptData,
                 fmt::format("column {}: the footer says {} rows, but {} values", c.wanted.name,
                             rows, values));
  }
  return {};
}

// What the footer of one file says.
Result<OpenedFile> read_footer(const DatasetFile& file, const features::Schema& schema) {
  if (file.bytes == 0) {
    return Error(Code::kCorruptData,
                 fmt::format("{}: found 0 bytes, allowed is a Parquet file", file.path));
  }
  PL_TRY(auto reader, open_file(file, nullptr));
  OpenedFile opened{file, reader->metadata(), {}, {}};
  for (const auto& column : schema.columns()) {
    auto matched = match_column(*opened.footer->schema(), column);
    if (!matched) return at(std::move(matched.error()), file.path);
    opened.columns.push_back(std::move(*matched));
  }
  std::int64_t rows = 0;
  for (int g = 0; g < opened.footer->num_row_groups(); ++g) {
    const auto group = opened.footer->RowGroup(g);
    const std::int64_t n = group->num_rows();
    if (n < 0 || n > opened.footer->num_rows() - rows) {
      return Error(Code::kCorruptData,
                   fmt::format("{}, row group {}: found {} rows, but the file declares {} in all",
                               file.path, g, n, opened.footer->num_rows()));
    }
    if (auto checked = check_values(*group, opened.columns, n); !checked) {
      return at(std::move(checked.error()), fmt::format("{}, row group {}", file.path, g));
    }
    opened.groups.push_back({n, decoded_bytes(*group, opened.columns)});
    rows += n;
  }
  return opened;
}

// Reads the footers with several threads. The error is that of the first file that has one.
Result<std::vector<OpenedFile>> read_footers(const std::vector<DatasetFile>& files,
                                             const features::Schema& schema) {
  const auto n = static_cast<std::int64_t>(files.size());
  std::vector<Result<OpenedFile>> read(files.size(), OpenedFile());
  std::atomic<std::int64_t> first_failed{n};
  const auto read_one = [&](std::int64_t f, int /*worker*/) {
    if (f > first_failed.load(std::memory_order_relaxed)) return;
    const auto i = static_cast<std::size_t>(f);
    read[i] = guarded([&] { return read_footer(files[i], schema); });
    if (read[i]) return;
    std::int64_t known = first_failed.load(std::memory_order_relaxed);
    while (f < known && !first_failed.compare_exchange_weak(known, f, std::memory_order_relaxed)) {
    }
  };
  const bool remote =
      std::any_of(files.begin(), files.end(), [](const auto& f) { return f.remote; });
  const auto threads = std::min<std::int64_t>(remote ? kRemoteOpeners : kLocalOpeners, n);
  auto done = guarded([&]() -> Result<void> {
    pipeline::TaskPool(static_cast<int>(threads)).run(n, read_one);
    return {};
  });
  if (!done) return Error(Code::kUnavailable, done.error().message());
  std::vector<OpenedFile> opened;
  for (auto& file : read) {
    if (!file) return Error(std::move(file.error()));
    opened.push_back(std::move(*file));
  }
  return opened;
}

void Files::add(OpenedFile opened) {
  std::int64_t first_row = 0;
  std::string counts;
  for (std::size_t g = 0; g < opened.groups.size(); ++g) {
    const auto& group = opened.groups[g];
    places.push_back({files.size(), static_cast<int>(g), first_row});
    blocks.push_back({group.rows, rows, fmt::format("{}, row group {}", opened.file.path, g),
                      group.bytes, first_row});
    add_number(counts, group.rows);
    first_row += group.rows;
    rows += std::min(group.rows, (std::int64_t{1} << 53) - rows);
  }
  infos.push_back({opened.file.relative, opened.file.bytes, first_row,
                   static_cast<std::int64_t>(opened.groups.size()),
                   XXH3_64bits(counts.data(), counts.size())});
  add_number(fingerprinted, static_cast<std::int64_t>(opened.file.relative.size()));
  fingerprinted += opened.file.relative;
  add_number(fingerprinted, opened.file.bytes);
  add_number(fingerprinted, static_cast<std::int64_t>(opened.groups.size()));
  fingerprinted += counts;
  files.push_back(std::move(opened));
}

// Asks for all columns in a few large reads: over a network each read costs a round trip. Reads
// that fail do so when their column is decoded.
void fetch_columns(parquet::ParquetFileReader& reader, int row_group,
                   const std::vector<ParquetColumn>& columns) {
  std::vector<int> leaves;
  for (const auto& c : columns) leaves.push_back(c.leaf);
  reader.PreBuffer({row_group}, leaves, arrow::io::IOContext(memory_pool()),
                   arrow::io::CacheOptions::Defaults());
}

void note_no_candidates(const std::vector<std::int64_t>& offsets, int column, RowIssues& issues) {
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    if (offsets[r] != offsets[r + 1]) continue;
    issues.push_back({static_cast<std::int64_t>(r), column, RowFault::kNoCandidates});
  }
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
  RowIssues issues;
  auto opened = open_file(file.file, file.footer);
  if (!opened) {
    return Error(std::move(opened.error()).context(fmt::format("reading {}", blocks[b].where)));
  }
  const auto& reader = *opened;
  auto done = guarded([&]() -> Result<void> {
    // A footer may declare more rows than memory holds.
    const auto ends = static_cast<std::size_t>(out.rows) + 1;
    out.history_offsets.assign(ends, 0);
    out.candidate_offsets.assign(ends, 0);
    if (file.file.remote) fetch_columns(*reader, place.row_group, file.columns);
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
  return open_parquet_files(found, schema, options);
}

Result<std::unique_ptr<Source>> open_parquet_files(const std::vector<DatasetFile>& found,
                                                   const features::Schema& schema,
                                                   const SourceOptions& options) {
  auto files = std::make_shared<Files>();
  files->max_bad_rows = options.max_bad_rows;
  PL_TRY(auto opened, read_footers(found, schema));
  for (auto& file : opened) files->add(std::move(file));
  files->fingerprint = XXH3_64bits(files->fingerprinted.data(), files->fingerprinted.size());
  return std::unique_ptr<Source>(std::make_unique<ParquetSource>(std::move(files)));
}

}  // namespace paceline::data
