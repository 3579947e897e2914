#include "data/movielens.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace paceline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kRowGroupRows = 1024;

struct Event {
  std::int64_t user = 0, time = 0, item = 0, rating = 0;
  friend auto operator<=>(const Event&, const Event&) = default;
};

// Events [begin, mid) are the history and [mid, end) the candidates.
struct Row {
  std::size_t begin = 0, mid = 0, end = 0;
};

std::int64_t actions_of(std::int64_t rating) {
  return 1 | (rating >= 4 ? 2 : 0) | (rating <= 2 ? 4 : 0) | (rating == 5 ? 8 : 0);
}

template <typename T>
bool parse(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// Numbers of the file may be written as 881250949.0; what is behind the point does not count.
bool parse_whole(std::string_view text, std::int64_t& value) {
  double number = 0;
  if (!parse(text, number) || !(std::abs(number) < 0x1p53)) return false;
  value = static_cast<std::int64_t>(number);
  return true;
}

bool parse_line(std::string_view line, Event& event) {
  std::array<std::string_view, 4> fields;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto tab = line.find('\t');
    if ((tab == std::string_view::npos) != (f + 1 == fields.size())) return false;
    fields[f] = line.substr(0, tab);
    if (tab != std::string_view::npos) line.remove_prefix(tab + 1);
  }
  return parse(fields[0], event.user) && parse(fields[1], event.item) &&
         parse_whole(fields[2], event.rating) && parse_whole(fields[3], event.time);
}

Result<std::vector<Event>> read_events(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return Error(Code::kNotFound, fmt::format("{}: no such file; allowed is an ml-100k.inter file "
                                              "(user, item, rating, timestamp, tab separated)",
                                              path.string()));
  }
  if (fs::is_directory(path, error)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: found a directory, allowed is the ml-100k.inter file in it",
                             path.string()));
  }
  std::ifstream in(path);
  if (!in) return Error(Code::kIo, fmt::format("{}: cannot be read", path.string()));
  std::vector<Event> events;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (number == 1) continue;
    Event event;
    if (!parse_line(line, event)) {
      return Error(Code::kCorruptData,
                   fmt::format("{}:{}: found \"{}\", allowed are four numbers separated by tabs: "
                               "user, item, rating, timestamp",
                               path.string(), number, line.substr(0, 80)));
    }
    events.push_back(event);
  }
  if (in.bad()) return Error(Code::kIo, fmt::format("{}: reading failed", path.string()));
  if (events.empty()) {
    return Error(Code::kCorruptData, fmt::format("{}: no events after the header", path.string()));
  }
  std::sort(events.begin(), events.end());
  return events;
}

std::vector<Row> rows_of(const std::vector<Event>& events, const MovieLensOptions& options) {
  const auto history = static_cast<std::size_t>(options.history);
  const auto candidates = static_cast<std::size_t>(options.candidates);
  std::vector<Row> rows;
  for (std::size_t first = 0; first < events.size();) {
    std::size_t last = first;
    while (last < events.size() && events[last].user == events[first].user) ++last;
    for (std::size_t mid = first; mid < last; mid += candidates) {
      const std::size_t begin = mid - std::min(mid - first, history);
      if (static_cast<std::int64_t>(mid - begin) < options.min_history) continue;
      rows.push_back({begin, mid, std::min(mid + candidates, last)});
    }
    first = last;
  }
  std::stable_sort(rows.begin(), rows.end(), [&events](const Row& a, const Row& b) {
    return std::tie(events[a.mid].time, events[a.mid].user) <
           std::tie(events[b.mid].time, events[b.mid].user);
  });
  return rows;
}

using ArrayResult = arrow::Result<std::shared_ptr<arrow::Array>>;

// One value a row.
template <typename Value>
ArrayResult scalar_array(const std::vector<Row>& rows, Value value) {
  arrow::Int64Builder builder;
  for (const Row& r : rows) ARROW_RETURN_NOT_OK(builder.Append(value(r)));
  return builder.Finish();
}

// One list a row: `value` of each event in [first(row), last(row)).
template <typename Value>
ArrayResult list_array(const std::vector<Row>& rows, std::size_t Row::*first,
                       std::size_t Row::*last, Value value) {
  auto values = std::make_shared<arrow::Int64Builder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const Row& r : rows) {
    ARROW_RETURN_NOT_OK(builder.Append());
    for (std::size_t e = r.*first; e < r.*last; ++e) {
      ARROW_RETURN_NOT_OK(values->Append(value(e)));
    }
  }
  return builder.Finish();
}

arrow::Result<std::shared_ptr<arrow::Table>> table_of(const std::vector<Event>& events,
                                                      const std::vector<Row>& rows) {
  const auto item = [&](std::size_t e) { return events[e].item; };
  const auto actions = [&](std::size_t e) { return actions_of(events[e].rating); };
  const auto time = [&](std::size_t e) { return events[e].time; };
  const auto user_of = [&](const Row& r) { return events[r.mid].user; };
  const auto time_of = [&](const Row& r) { return events[r.mid].time; };
  ARROW_ASSIGN_OR_RAISE(auto users, scalar_array(rows, user_of));
  ARROW_ASSIGN_OR_RAISE(auto times, scalar_array(rows, time_of));
  ARROW_ASSIGN_OR_RAISE(auto history_item, list_array(rows, &Row::begin, &Row::mid, item));
  ARROW_ASSIGN_OR_RAISE(auto history_actions, list_array(rows, &Row::begin, &Row::mid, actions));
  ARROW_ASSIGN_OR_RAISE(auto history_time, list_array(rows, &Row::begin, &Row::mid, time));
  ARROW_ASSIGN_OR_RAISE(auto candidate_item, list_array(rows, &Row::mid, &Row::end, item));
  ARROW_ASSIGN_OR_RAISE(auto candidate_actions, list_array(rows, &Row::mid, &Row::end, actions));
  const auto list = arrow::list(arrow::int64());
  const auto schema = arrow::schema(
      {arrow::field("user_id", arrow::int64()), arrow::field("request_time", arrow::int64()),
       arrow::field("history_item_id", list), arrow::field("history_actions", list),
       arrow::field("history_time", list), arrow::field("candidate_item_id", list),
       arrow::field("candidate_actions", list)});
  return arrow::Table::Make(schema, {users, times, history_item, history_actions, history_time,
                                     candidate_item, candidate_actions});
}

arrow::Status write_table(const arrow::Table& table, const fs::path& path) {
  ARROW_ASSIGN_OR_RAISE(auto stream, arrow::io::FileOutputStream::Open(path.string()));
  const auto properties = parquet::WriterProperties::Builder()
                              .compression(parquet::Compression::ZSTD)
                              ->enable_page_checksum()
                              ->build();
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ARROW_RETURN_NOT_OK(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), stream,
                                                 kRowGroupRows, properties, arrow_properties));
  return stream->Close();
}

// Files under temporary names until all are complete.
class PendingFiles {
 public:
  ~PendingFiles() {
    std::error_code ignored;
    for (const auto& [temporary, path] : files_) fs::remove(temporary, ignored);
  }
  fs::path add(const fs::path& path) {
    files_.emplace_back(path.string() + fmt::format(".tmp-{}", ::getpid()), path);
    return files_.back().first;
  }
  Result<void> publish() {
    for (const auto& [temporary, path] : files_) {
      std::error_code error;
      fs::rename(temporary, path, error);
      if (error) {
        return Error(Code::kIo, fmt::format("cannot rename {} to {}: {}", temporary.string(),
                                            path.string(), error.message()));
      }
    }
    return {};
  }

 private:
  std::vector<std::pair<fs::path, fs::path>> files_;
};

}  // namespace

Result<MovieLensCounts> import_movielens(const fs::path& inter, const fs::path& out_dir,
                                         const MovieLensOptions& options) {
  if (options.history < 1 || options.candidates < 1 || options.min_history < 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("found history {}, candidates {}, min_history {}; allowed are at "
                             "least 1, 1 and 0",
                             options.history, options.candidates, options.min_history));
  }
  PL_TRY(const auto events, read_events(inter));
  const auto rows = rows_of(events, options);
  std::error_code error;
  fs::create_directories(out_dir, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot create the directory {}: {}", out_dir.string(),
                                        error.message()));
  }
  MovieLensCounts counts;
  counts.events = static_cast<std::int64_t>(events.size());
  const std::size_t n = rows.size();
  const std::array<std::size_t, 4> cuts{0, n * 8 / 10, n * 9 / 10, n};
  const std::array<const char*, 3> names{"train", "valid", "test"};
  const std::array<MovieLensCounts::Split*, 3> splits{&counts.train, &counts.valid, &counts.test};
  PendingFiles pending;
  for (std::size_t s = 0; s < names.size(); ++s) {
    const std::vector<Row> part(rows.begin() + static_cast<std::ptrdiff_t>(cuts[s]),
                                rows.begin() + static_cast<std::ptrdiff_t>(cuts[s + 1]));
    splits[s]->rows = static_cast<std::int64_t>(part.size());
    for (const Row& r : part) splits[s]->candidates += static_cast<std::int64_t>(r.end - r.mid);
    const fs::path path = out_dir / (std::string(names[s]) + ".parquet");
    const auto table = table_of(events, part);
    const auto status = table.ok() ? write_table(**table, pending.add(path)) : table.status();
    if (!status.ok()) {
      return Error(status.IsOutOfMemory() ? Code::kOutOfMemory : Code::kIo,
                   fmt::format("cannot write {}: {}", path.string(), status.message()));
    }
  }
  PL_TRY_VOID(pending.publish());
  return counts;
}

}  // namespace paceline::data
