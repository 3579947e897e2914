#include "data/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "core/bytes.hpp"
#include "core/clock.hpp"
#include "data/dataset_files.hpp"
#include "data/inspect_tally.hpp"
#include "data/parquet_file.hpp"
#include "data/source.hpp"

namespace paceline::data {
namespace {

// Calls body(worker, item) for items [0, count) in ascending order per worker, on `threads`
// threads; `meanwhile` is called on this one until they are done, at least once. The first error is
// returned.
class Workers {
 public:
  template <typename Body>
  static Result<void> run(std::int64_t count, int threads, Body&& body,
                          const std::function<void()>& meanwhile) {
    Workers w;
    const auto most = static_cast<int>(std::min<std::int64_t>(count, threads));
    std::atomic<int> busy{most};
    std::vector<std::thread> running;
    const auto work = [&](std::size_t worker) {
      try {
        for (std::int64_t i = w.next_.fetch_add(1); i < count; i = w.next_.fetch_add(1)) {
          if (!body(worker, i)) break;
        }
      } catch (const std::bad_alloc&) {
        w.fail(Error(Code::kOutOfMemory, "no memory left; fewer --threads hold fewer row groups"));
      } catch (const std::exception& e) {
        w.fail(Error(Code::kInternal, e.what()));
      }
      busy.fetch_sub(1);
    };
    for (int t = 0; t < most; ++t) {
      try {
        running.emplace_back(work, static_cast<std::size_t>(t));
      } catch (const std::system_error& e) {
        busy.fetch_sub(most - t);
        if (t == 0) w.fail(Error(Code::kUnavailable, e.what()));
        break;
      }
    }
    while (busy.load() > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      meanwhile();
    }
    meanwhile();
    for (auto& thread : running) thread.join();
    if (w.failed_) return std::move(*w.failed_);
    return {};
  }

 private:
  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::make_unique<Error>(std::move(error));
  }

  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;
  std::unique_ptr<Error> failed_;
};

struct Opened {
  std::unique_ptr<Source> source;  // null when the file is refused
  FileColumns footer;
  std::string why;
};

// The file as training would see it.
Opened open_one(const DatasetFile& file, const features::Schema& schema) {
  Opened opened;
  auto footer = file_columns(file);
  if (footer) opened.footer = std::move(*footer);
  const SourceOptions options{.max_bad_rows = std::numeric_limits<std::int64_t>::max()};
  auto source = open_parquet_files({file}, schema, options);
  if (source) {
    opened.source = std::move(*source);
  } else {
    opened.why = source.error().message();
  }
  return opened;
}

bool reads(const features::Schema& schema, const std::string& name) {
  const auto& columns = schema.columns();
  return std::any_of(columns.begin(), columns.end(),
                     [&](const auto& column) { return column.name == name; });
}

void add_columns(const FileColumns& footer, const features::Schema& schema,
                 std::vector<ColumnReport>& out) {
  for (const auto& column : footer.columns) {
    const auto known = std::find_if(out.begin(), out.end(), [&](const ColumnReport& r) {
      return r.column.name == column.name && r.column.type == column.type;
    });
    if (known == out.end()) {
      out.push_back({column, 1, reads(schema, column.name)});
    } else {
      known->column.add(column);
      ++known->files;
    }
  }
}

void refuse_file(const std::string& path, const std::string& why, std::int64_t max_listed,
                 Inspection& out) {
  ++out.refused_files;
  const RefusalKind kind = kind_of(why, path);
  const auto known = std::find_if(out.by_reason.begin(), out.by_reason.end(),
                                  [&](const auto& reason) { return reason.kind == kind; });
  if (known == out.by_reason.end()) {
    out.by_reason.push_back({kind, 0, 0, 1, {path, -1, -1, why}});
  } else {
    ++known->files;
  }
  if (static_cast<std::int64_t>(out.refusals.size()) < max_listed) {
    out.refusals.push_back({path, -1, -1, why});
  }
}

// The blocks of all files that can be used, by their footers: what memory is reckoned from.
class Footers final : public Source {
 public:
  explicit Footers(const std::vector<Opened>& files) {
    for (const auto& file : files) {
      if (file.source == nullptr) continue;
      const auto& blocks = file.source->blocks();
      blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
      rows_ += file.source->rows();
    }
  }
  const std::vector<BlockInfo>& blocks() const override { return blocks_; }
  std::int64_t rows() const override { return rows_; }
  std::uint64_t fingerprint() const override { return 0; }
  const std::vector<FileInfo>& files() const override { return files_; }
  Result<void> read(std::int64_t, features::RowBlock&) const override {
    return Error(Code::kInternal, "footers hold no rows");
  }

 private:
  std::vector<BlockInfo> blocks_;
  std::vector<FileInfo> files_;
  std::int64_t rows_ = 0;
};

struct Work {
  std::vector<BlockPlace> places;
  std::vector<std::int64_t> rows;  // of each place
};

Work list_blocks(const std::vector<Opened>& files, Inspection& out) {
  Work work;
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (files[f].source == nullptr) continue;
    std::int64_t row_group = 0;
    for (const auto& block : files[f].source->blocks()) {
      work.places.push_back({f, row_group++, block.first_row});
      work.rows.push_back(block.rows);
      out.rows += block.rows;
      out.max_block_bytes = std::max(out.max_block_bytes, block.bytes);
    }
  }
  out.blocks = static_cast<std::int64_t>(work.places.size());
  auto sorted = work.rows;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty()) {
    out.min_block_rows = sorted.front();
    out.median_block_rows = sorted[sorted.size() / 2];
    out.max_block_rows = sorted.back();
  }
  return work;
}

// How many blocks hold the first `limit` rows.
std::int64_t blocks_within(const Work& work, std::int64_t limit) {
  const auto all = static_cast<std::int64_t>(work.rows.size());
  if (limit <= 0) return all;
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < all; ++b) {
    if (rows >= limit) return b;
    rows += work.rows[static_cast<std::size_t>(b)];
  }
  return all;
}

// Reads a block unless its footer declares more than `memory` bytes.
Result<void> read_within(const Source& source, std::int64_t block, std::int64_t memory,
                         features::RowBlock& out) {
  const auto& info = source.blocks()[static_cast<std::size_t>(block)];
  if (info.bytes > memory) {
    return Error(Code::kOutOfMemory,
                 fmt::format("{}: declares up to {} decoded, this machine has {}", info.where,
                             bytes_text(info.bytes), bytes_text(memory)));
  }
  return source.read(block, out);
}

struct Reader {
  Tally tally;
  features::RowBlock block;
  double read_seconds = 0.0;
};

Result<void> read_blocks(const std::vector<Opened>& files, const std::vector<std::string>& names,
                         const features::Schema& schema, const features::BatchLayout& layout,
                         const InspectOptions& options, Inspection& out) {
  const Work work = list_blocks(files, out);
  const std::int64_t count = blocks_within(work, options.limit_rows);
  std::int64_t rows_wanted = 0;
  for (std::int64_t b = 0; b < count; ++b) rows_wanted += work.rows[static_cast<std::size_t>(b)];
  const std::int64_t memory = machine_memory_bytes();
  std::atomic<std::int64_t> rows_done{0};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Reader>> readers;
  for (int t = 0; t < options.threads; ++t) {
    readers.push_back(std::make_unique<Reader>(
        Reader{Tally(schema, layout, names, options.max_listed), features::RowBlock(), 0.0}));
  }
  const auto body = [&](std::size_t worker, std::int64_t b) {
    if (stop.load()) return false;
    Reader& reader = *readers[worker];
    const auto& place = work.places[static_cast<std::size_t>(b)];
    const std::int64_t rows = work.rows[static_cast<std::size_t>(b)];
    const auto& source = *files[place.file].source;
    const auto start = Clock::now();
    const auto read = read_within(source, place.row_group, memory, reader.block);
    reader.read_seconds += seconds_since(start);
    if (read) {
      reader.tally.add(reader.block, place);
    } else {
      reader.tally.refuse_block(place, rows, read.error().message());
    }
    rows_done.fetch_add(rows);
    return true;
  };
  auto last = Clock::now();
  const auto meanwhile = [&] {
    if (!options.on_progress || seconds_since(last) < 0.1) return;
    last = Clock::now();
    if (!options.on_progress(rows_done.load(), rows_wanted)) stop.store(true);
  };
  const auto start = Clock::now();
  PL_TRY_VOID(Workers::run(count, options.threads, body, meanwhile));
  out.seconds = seconds_since(start);
  out.stopped = stop.load() && rows_done.load() < rows_wanted;
  for (auto& reader : readers) {
    reader->tally.finish();
    out.read_seconds += reader->read_seconds;
    if (reader != readers.front()) readers.front()->tally.merge(reader->tally);
  }
  readers.front()->tally.report(out);
  return {};
}

}  // namespace

Result<Inspection> inspect(const std::vector<std::string>& paths, const features::Schema& schema,
                           const features::BatchLimits& limits, const InspectOptions& options) {
  PL_CHECK(options.threads > 0, "at least one thread");
  PL_TRY(const auto found, find_files(paths));
  Inspection out;
  std::vector<std::string> names;
  for (const auto& file : found) names.push_back(file.path);
  std::vector<Opened> files(found.size());
  std::atomic<bool> stop{false};
  const auto open = [&](std::size_t, std::int64_t f) {
    const auto i = static_cast<std::size_t>(f);
    files[i] = open_one(found[i], schema);
    return !stop.load();
  };
  const auto meanwhile = [&] {
    if (options.on_progress && !options.on_progress(0, 0)) stop.store(true);
  };
  PL_TRY_VOID(
      Workers::run(static_cast<std::int64_t>(files.size()), options.threads, open, meanwhile));
  if (stop.load()) {
    out.stopped = true;
    return out;
  }
  std::int64_t compressed = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    ++out.files;
    out.file_bytes += found[f].bytes;
    add_columns(files[f].footer, schema, out.columns);
    if (files[f].source == nullptr) {
      refuse_file(names[f], files[f].why, options.max_listed, out);
      continue;
    }
    for (const auto& column : files[f].footer.columns) {
      if (reads(schema, column.name)) compressed += column.compressed_bytes;
    }
  }
  BatchPipelineOptions loading = options.loading;
  loading.limits = limits;
  out.memory = reckon_memory(Footers(files), schema, loading);
  const features::BatchLayout layout(schema, limits);
  PL_TRY_VOID(read_blocks(files, names, schema, layout, options, out));
  if (out.rows > 0) {
    const double share = static_cast<double>(out.rows_read) / static_cast<double>(out.rows);
    out.bytes_read = static_cast<std::int64_t>(share * static_cast<double>(compressed));
  }
  return out;
}

}  // namespace paceline::data
