#include "checkpoint/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/layout.hpp"

namespace paceline::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBegin = "begin", kEnd = "end", kEntries = "entries", kRows = "rows";
// Rows that are put over others are read in blocks of about so many bytes.
constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;

Error corrupt(const fs::path& file, const std::string& what) {
  return Error(Code::kCorruptData, fmt::format("{}: {}", file.string(), what));
}

// The entries that all tensors have.
Result<std::int64_t> entries_of(std::span<const TensorView> tables, const TableDelta* delta) {
  const auto refuse = [](std::string text) {
    return Error(Code::kInvalidArgument, std::move(text));
  };
  std::int64_t entries = delta != nullptr ? static_cast<std::int64_t>(delta->rows.size()) : 0;
  if (delta == nullptr && !tables.empty() && !tables[0].shape.empty()) entries = tables[0].shape[0];
  for (const auto& t : tables) {
    if (t.shape.empty() || t.shape[0] != entries) {
      return refuse(
          fmt::format("table tensor {} has not {} entries, one per row", t.name, entries));
    }
    if (t.name == kRowIndex) return refuse(fmt::format("the name {} is taken", kRowIndex));
  }
  if (delta == nullptr) return entries;
  std::int64_t before = -1;
  for (const auto row : delta->rows) {
    if (row <= before || row >= delta->table_rows) {
      return refuse(fmt::format("row {} after row {}: rows of a difference ascend from 0 to {}",
                                row, before, delta->table_rows - 1));
    }
    before = row;
  }
  return entries;
}

struct Cut {
  std::int64_t per_file = 0;
  int files = 1;
};

Cut cut(std::int64_t entries, std::uint64_t entry_bytes, std::uint64_t shard_bytes) {
  if (entry_bytes == 0 || static_cast<std::uint64_t>(entries) <= shard_bytes / entry_bytes) {
    return {entries, 1};
  }
  const auto fit = static_cast<std::int64_t>(shard_bytes / entry_bytes);
  const auto least = (entries + kMaxTableFiles - 1) / kMaxTableFiles;
  const auto per_file = std::max({std::int64_t{1}, fit, least});
  return {per_file, static_cast<int>((entries + per_file - 1) / per_file)};
}

// Exactly decimal digits, below 10^18.
std::optional<std::int64_t> number_in(const Metadata& metadata, std::string_view key) {
  const auto found = metadata.find(std::string(key));
  if (found == metadata.end() || found->second.empty() || found->second.size() > 18) return {};
  std::int64_t value = 0;
  for (const char c : found->second) {
    if (c < '0' || c > '9') return {};
    value = value * 10 + (c - '0');
  }
  return value;
}

Result<TableRange> range_of(const fs::path& file, const SafetensorsHeader& header,
                            const Manifest& manifest) {
  // Written without: one file, all rows.
  if (header.metadata.empty() && !manifest.base && manifest.table_files().size() == 1) {
    const auto& all = header.tensors;
    const auto rows = all.empty() || all[0].shape.empty() ? 0 : all[0].shape[0];
    return TableRange{0, rows, rows, rows};
  }
  const auto begin = number_in(header.metadata, kBegin), end = number_in(header.metadata, kEnd);
  const auto entries = number_in(header.metadata, kEntries);
  const auto rows = number_in(header.metadata, kRows);
  if (!begin || !end || !entries || !rows) {
    return corrupt(file, "__metadata__ does not say begin, end, entries and rows");
  }
  const TableRange range{*begin, *end, *entries, *rows};
  const bool fits = range.begin <= range.end && range.end <= range.entries &&
                    (manifest.base ? range.entries <= range.rows : range.entries == range.rows);
  if (!fits) {
    return corrupt(file, fmt::format("entries {} to {} of {} in a table of {} rows", range.begin,
                                     range.end, range.entries, range.rows));
  }
  return range;
}

std::string shape_text(const TensorInfo& t) {
  return fmt::format("{} of shape [{}]", name_of(t.dtype), fmt::join(t.shape, ", "));
}

// The tensors of a file are those of the table, cut to its range.
Result<void> check_tensors(const TableFile& file, std::span<const TableTensor> tensors) {
  const auto count = file.range.end - file.range.begin;
  for (const auto& t : tensors) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                    [&](const TensorInfo& i) { return i.name == t.info.name; });
    if (found == file.tensors.end()) {
      return corrupt(file.in.path(), fmt::format("tensor {} is missing", t.info.name));
    }
    auto needed = t.info;
    needed.shape[0] = count;
    if (*found != needed) {
      return corrupt(file.in.path(), fmt::format("tensor {} is {}, the table needs {}", t.info.name,
                                                 shape_text(*found), shape_text(needed)));
    }
  }
  if (file.tensors.size() != tensors.size()) {
    return corrupt(file.in.path(), "it has tensors that the table has not");
  }
  return {};
}

const TableTensor& find(std::span<const TableTensor> tensors, const TensorInfo& info) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TableTensor& t) { return t.info.name == info.name; });
  PL_CHECK(found != tensors.end(), "a tensor that was checked");
  return *found;
}

// The row numbers, which come before all other data.
Result<std::vector<std::int64_t>> read_row_index(TableFile& file, std::int64_t table_rows,
                                                 std::int64_t before) {
  const auto count = file.range.end - file.range.begin;
  const TensorInfo needed{std::string(kRowIndex), Dtype::kI64, {count}};
  const auto at = std::find(file.tensors.begin(), file.tensors.end(), needed);
  if (at == file.tensors.end() || (count > 0 && at != file.tensors.begin())) {
    return corrupt(file.in.path(),
                   fmt::format("it does not begin with {}, I64 of {} rows", kRowIndex, count));
  }
  file.tensors.erase(at);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  PL_TRY_VOID(file.in.read(std::as_writable_bytes(std::span(rows))));
  for (const auto row : rows) {
    if (row <= before || row >= table_rows) {
      return corrupt(file.in.path(), fmt::format("row {} after row {} in a table of {} rows", row,
                                                 before, table_rows));
    }
    before = row;
  }
  return rows;
}

Result<void> scatter(InputFile& in, const TableTensor& tensor, std::span<const std::int64_t> rows,
                     std::vector<std::byte>& block) {
  const auto size = static_cast<std::size_t>(tensor.row_bytes);
  const auto memory = *tensor.memory;
  if (size == 0) return {};
  const std::size_t at_once = std::max<std::size_t>(1, kBlockBytes / size);
  for (std::size_t done = 0; done < rows.size();) {
    const std::size_t count = std::min(at_once, rows.size() - done);
    block.resize(std::max(block.size(), count * size));
    PL_TRY_VOID(in.read(std::span(block).first(count * size)));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(memory.data() + static_cast<std::size_t>(rows[done + i]) * size,
                  block.data() + i * size, size);
    }
    done += count;
  }
  return {};
}

}  // namespace

Result<std::vector<FileRecord>> write_table_files(FileOps& ops, const fs::path& hidden,
                                                  std::span<const TensorView> tables,
                                                  const TableDelta* delta,
                                                  std::uint64_t shard_bytes) {
  PL_TRY(const auto entries, entries_of(tables, delta));
  std::uint64_t entry_bytes = delta != nullptr ? sizeof(std::int64_t) : 0;
  for (const auto& t : tables) {
    if (entries > 0) entry_bytes += t.bytes.size() / static_cast<std::uint64_t>(entries);
  }
  const auto [per_file, files] = cut(entries, entry_bytes, shard_bytes);
  std::vector<FileRecord> records;
  for (int i = 0; i < files; ++i) {
    const auto begin = i * per_file, end = std::min(entries, begin + per_file);
    const auto first = static_cast<std::size_t>(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    std::vector<TensorView> views;
    for (const auto& t : tables) {
      const auto row_bytes = entries > 0 ? t.bytes.size() / static_cast<std::size_t>(entries) : 0;
      auto& view = views.emplace_back(t);
      view.shape[0] = end - begin;
      view.bytes = t.bytes.subspan(first * row_bytes, count * row_bytes);
    }
    if (delta != nullptr) {
      views.push_back({std::string(kRowIndex),
                       Dtype::kI64,
                       {end - begin},
                       std::as_bytes(delta->rows.subspan(first, count))});
    }
    const auto rows = delta != nullptr ? delta->table_rows : entries;
    const Metadata metadata = {{std::string(kBegin), std::to_string(begin)},
                               {std::string(kEnd), std::to_string(end)},
                               {std::string(kEntries), std::to_string(entries)},
                               {std::string(kRows), std::to_string(rows)}};
    PL_TRY(auto record, write_tensors(ops, hidden / table_file_name(i, files), views, metadata));
    records.push_back(std::move(record));
  }
  return records;
}

Result<TableFile> open_table_file(FileOps& ops, const fs::path& checkpoint,
                                  const Manifest& manifest, const std::string& name) {
  PL_TRY(auto in, open_file(ops, checkpoint, name));
  PL_TRY(auto header, read_header(in));
  PL_TRY(const auto range, range_of(in.path(), header, manifest));
  return TableFile{std::move(in), std::move(header.tensors), range};
}

Result<std::vector<TableTensor>> table_tensors(const TableFile& first, const Manifest& manifest) {
  std::vector<TableTensor> tensors;
  std::uint64_t all = 0;
  for (const auto& t : first.tensors) {
    if (t.shape.empty() || t.shape[0] != first.range.end - first.range.begin) {
      return corrupt(first.in.path(),
                     fmt::format("tensor {} has not one entry for each row of the file", t.name));
    }
    TableTensor tensor{t, 0, {}};
    tensor.info.shape[0] = 1;
    const auto row_bytes = bytes_of(tensor.info);
    tensor.info.shape[0] = first.range.rows;
    const auto bytes =
        row_bytes ? product(*row_bytes, static_cast<std::uint64_t>(first.range.rows)) : row_bytes;
    if (!bytes || *bytes > manifest.table_bytes() - all) {
      return corrupt(first.in.path(),
                     fmt::format("it declares {} rows of {}, more than the {} bytes of all table "
                                 "files",
                                 first.range.rows, t.name, manifest.table_bytes()));
    }
    all += *bytes;
    tensor.row_bytes = *row_bytes;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<void> read_rows(TableFile& file, std::span<const TableTensor> tensors, std::int64_t next) {
  if (file.range.begin != next) {
    return corrupt(file.in.path(), fmt::format("it begins with row {}, the file before ends at {}",
                                               file.range.begin, next));
  }
  PL_TRY_VOID(check_tensors(file, tensors));
  for (const auto& info : file.tensors) {
    const auto& tensor = find(tensors, info);
    const auto size = static_cast<std::uint64_t>(file.range.end - next) * tensor.row_bytes;
    if (tensor.memory) {
      const auto first = static_cast<std::uint64_t>(next) * tensor.row_bytes;
      PL_TRY_VOID(file.in.read(tensor.memory->subspan(first, size)));
    } else {
      PL_TRY_VOID(file.in.skip(size));
    }
  }
  return {};
}

Result<void> scatter_rows(TableFile& file, std::span<const TableTensor> tensors,
                          std::int64_t table_rows, std::vector<std::int64_t>& rows) {
  if (file.range.rows != table_rows || file.range.begin != static_cast<std::int64_t>(rows.size())) {
    return corrupt(file.in.path(),
                   fmt::format("it begins with entry {} of a table of {} rows; entry {} of {} rows "
                               "is needed",
                               file.range.begin, file.range.rows, rows.size(), table_rows));
  }
  PL_TRY(const auto index, read_row_index(file, table_rows, rows.empty() ? -1 : rows.back()));
  PL_TRY_VOID(check_tensors(file, tensors));
  std::vector<std::byte> block;
  for (const auto& info : file.tensors) {
    const auto& tensor = find(tensors, info);
    if (tensor.memory) {
      PL_TRY_VOID(scatter(file.in, tensor, index, block));
    } else {
      PL_TRY_VOID(file.in.skip(index.size() * tensor.row_bytes));
    }
  }
  rows.insert(rows.end(), index.begin(), index.end());
  return {};
}

}  // namespace paceline::checkpoint
