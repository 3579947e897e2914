#include "data/synth/writer.hpp"

#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <fmt/format.h>
#include <parquet/column_writer.h>
#include <parquet/exception.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <new>
#include <vector>

namespace paceline::data::synth {
namespace {

using parquet::LogicalType;
using parquet::Repetition;
using parquet::schema::GroupNode;
using parquet::schema::NodePtr;
using parquet::schema::PrimitiveNode;

enum class Side : std::uint8_t { kRow, kHistory, kCandidate };

// How values are stored before compression: what repeats often by number, slowly changing times by
// difference, the rest as they are.
enum class Form : std::uint8_t { kDictionary, kDelta, kPlain };

struct ColumnPlan {
  const char* name;
  Side side;
  Form form;
  std::vector<std::int64_t> RowColumns::*longs = nullptr;
  std::vector<std::int32_t> RowColumns::*ints = nullptr;
  std::vector<float> RowColumns::*floats = nullptr;
  bool mask = false;
};

ColumnPlan of(const char* name, Side side, Form form, std::vector<std::int64_t> RowColumns::*m) {
  return {name, side, form, m, nullptr, nullptr, false};
}
ColumnPlan of(const char* name, Side side, Form form, std::vector<std::int32_t> RowColumns::*m) {
  return {name, side, form, nullptr, m, nullptr, false};
}
ColumnPlan of(const char* name, Side side, Form form, std::vector<float> RowColumns::*m) {
  return {name, side, form, nullptr, nullptr, m, false};
}
ColumnPlan mask_of(const char* name, Side side, std::vector<std::int64_t> RowColumns::*m) {
  return {name, side, Form::kDictionary, m, nullptr, nullptr, true};
}

// In the order of the file; `oracle_probability` follows them.
const std::vector<ColumnPlan>& plans() {
  using R = RowColumns;
  using enum Side;
  using enum Form;
  static const std::vector<ColumnPlan> kPlans{
      of("user_id", kRow, kPlain, &R::user_id),
      of("request_time", kRow, kDelta, &R::request_time),
      of("request_hour", kRow, kDictionary, &R::request_hour),
      of("user_country", kRow, kDictionary, &R::user_country),
      of("user_language", kRow, kDictionary, &R::user_language),
      of("user_gender", kRow, kDictionary, &R::user_gender),
      of("user_age_bracket", kRow, kDictionary, &R::user_age_bracket),
      of("user_age", kRow, kDictionary, &R::user_age),
      of("user_timezone", kRow, kDictionary, &R::user_timezone),
      of("user_platform", kRow, kDictionary, &R::user_platform),
      of("user_log_activity", kRow, kPlain, &R::user_log_activity),
      {"user_apps", kRow, kPlain, &R::user_apps, nullptr, nullptr, true},
      of("history_item_id", kHistory, kDictionary, &R::history_item_id),
      of("history_author_id", kHistory, kDictionary, &R::history_author_id),
      of("history_time", kHistory, kDelta, &R::history_time),
      of("history_post_time", kHistory, kDelta, &R::history_post_time),
      of("history_hour", kHistory, kDictionary, &R::history_hour),
      of("history_surface", kHistory, kDictionary, &R::history_surface),
      of("history_code", kHistory, kDictionary, &R::history_code),
      of("history_log_likes", kHistory, kDictionary, &R::history_log_likes),
      mask_of("history_actions", kHistory, &R::history_actions),
      of("history_dwell", kHistory, kPlain, &R::history_dwell),
      of("candidate_item_id", kCandidate, kDictionary, &R::candidate_item_id),
      of("candidate_author_id", kCandidate, kDictionary, &R::candidate_author_id),
      of("candidate_post_time", kCandidate, kDelta, &R::candidate_post_time),
      of("candidate_surface", kCandidate, kDictionary, &R::candidate_surface),
      of("candidate_code", kCandidate, kDictionary, &R::candidate_code),
      of("candidate_log_likes", kCandidate, kDictionary, &R::candidate_log_likes),
      mask_of("candidate_actions", kCandidate, &R::candidate_actions),
      of("candidate_dwell", kCandidate, kPlain, &R::candidate_dwell)};
  return kPlans;
}

NodePtr leaf(const char* name, parquet::Type::type type, bool mask = false) {
  return PrimitiveNode::Make(name, Repetition::REQUIRED,
                             mask ? LogicalType::Int(64, false) : LogicalType::None(), type);
}

NodePtr list(const char* name, NodePtr element) {
  return GroupNode::Make(name, Repetition::REQUIRED,
                         {GroupNode::Make("list", Repetition::REPEATED, {std::move(element)})},
                         LogicalType::List());
}

std::shared_ptr<GroupNode> file_schema() {
  parquet::schema::NodeVector fields;
  for (const auto& plan : plans()) {
    const auto type = plan.longs  ? parquet::Type::INT64
                      : plan.ints ? parquet::Type::INT32
                                  : parquet::Type::FLOAT;
    const bool scalar = plan.side == Side::kRow;
    auto value = leaf(scalar ? plan.name : "element", type, plan.mask);
    fields.push_back(scalar ? std::move(value) : list(plan.name, std::move(value)));
  }
  parquet::schema::NodeVector actions;
  for (const auto& action : kActionInfos)
    actions.push_back(leaf(action.name, parquet::Type::FLOAT));
  fields.push_back(
      list("oracle_probability", GroupNode::Make("element", Repetition::REQUIRED, actions)));
  return std::static_pointer_cast<GroupNode>(
      GroupNode::Make("schema", Repetition::REQUIRED, fields));
}

// Sanitizers follow memory of the system's allocator only.
arrow::MemoryPool* memory_pool() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return arrow::system_memory_pool();
#else
  return arrow::default_memory_pool();
#endif
}

std::shared_ptr<parquet::WriterProperties> properties_of(const Options& options) {
  parquet::WriterProperties::Builder b;
  b.memory_pool(memory_pool());
  b.enable_page_checksum()->disable_statistics()->enable_statistics("user_id")->enable_statistics(
      "request_time");
  b.disable_dictionary();
  b.dictionary_pagesize_limit(4 << 20);
  const auto& c = options.compression;
  b.compression(c == "zstd"     ? parquet::Compression::ZSTD
                : c == "snappy" ? parquet::Compression::SNAPPY
                : c == "lz4"    ? parquet::Compression::LZ4
                : c == "gzip"   ? parquet::Compression::GZIP
                                : parquet::Compression::UNCOMPRESSED);
  if (c == "zstd") b.compression_level(1);
  for (const auto& plan : plans()) {
    const std::string path =
        plan.side == Side::kRow ? plan.name : std::string(plan.name) + ".list.element";
    if (plan.form == Form::kDictionary) b.enable_dictionary(path);
    if (plan.form == Form::kDelta) b.encoding(path, parquet::Encoding::DELTA_BINARY_PACKED);
  }
  return b.build();
}

// Definition and repetition levels of lists: one level for each element, one for an empty list.
struct Levels {
  std::vector<std::int16_t> definition, repetition;

  void set(const std::vector<std::int64_t>& offsets) {
    definition.clear();
    repetition.clear();
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
      const auto n = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
      repetition.push_back(0);
      definition.push_back(n > 0 ? 1 : 0);
      if (n > 1) {
        repetition.resize(repetition.size() + n - 1, 1);
        definition.resize(definition.size() + n - 1, 1);
      }
    }
  }
};

template <typename DType, typename T>
void write_values(parquet::ColumnWriter& base, const Levels* levels, std::int64_t rows,
                  const std::vector<T>& values) {
  auto& writer = static_cast<parquet::TypedColumnWriter<DType>&>(base);
  if (levels == nullptr) {
    writer.WriteBatch(rows, nullptr, nullptr, values.data());
  } else {
    writer.WriteBatch(static_cast<std::int64_t>(levels->definition.size()),
                      levels->definition.data(), levels->repetition.data(), values.data());
  }
  writer.Close();
}

void write_row_group(parquet::RowGroupWriter& group, const RowColumns& columns) {
  Levels history, candidates;
  history.set(columns.history_offsets);
  candidates.set(columns.candidate_offsets);
  const std::int64_t rows = columns.rows();
  for (const auto& plan : plans()) {
    const Levels* levels = plan.side == Side::kHistory     ? &history
                           : plan.side == Side::kCandidate ? &candidates
                                                           : nullptr;
    auto& writer = *group.NextColumn();
    if (plan.longs) write_values<parquet::Int64Type>(writer, levels, rows, columns.*plan.longs);
    if (plan.ints) write_values<parquet::Int32Type>(writer, levels, rows, columns.*plan.ints);
    if (plan.floats) write_values<parquet::FloatType>(writer, levels, rows, columns.*plan.floats);
  }
  for (const auto& probabilities : columns.oracle) {
    write_values<parquet::FloatType>(*group.NextColumn(), &candidates, rows, probabilities);
  }
  group.Close();
}

Error write_error(const std::filesystem::path& path, const std::string& why) {
  return Error(Code::kIo, fmt::format("cannot write {}: {}", path.string(), why));
}

// What is left half written is the caller's to remove.
Error stopped() { return Error(Code::kCancelled, "stopped; nothing was written"); }

}  // namespace

Result<FileCounts> write_file(const std::filesystem::path& path, const Options& options,
                              std::int64_t first, std::int64_t rows, RowDrawer& drawer,
                              RowColumns& columns,
                              const std::function<bool(std::int64_t)>& on_rows) try {
  auto stream = arrow::io::FileOutputStream::Open(path.string());
  if (!stream.ok()) return write_error(path, stream.status().message());
  const auto writer =
      parquet::ParquetFileWriter::Open(*stream, file_schema(), properties_of(options));
  FileCounts counts;
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t n = std::min(options.row_group_rows, rows - done);
    columns.clear();
    for (std::int64_t r = 0; r < n; ++r) {
      if (!on_rows(0)) return stopped();
      drawer.append(first + done + r, columns);
    }
    write_row_group(*writer->AppendRowGroup(), columns);
    counts.history_events += columns.history_offsets.back();
    counts.candidates += columns.candidate_offsets.back();
    done += n;
    if (!on_rows(n)) return stopped();
  }
  writer->Close();
  const auto bytes = (*stream)->Tell();
  const auto closed = (*stream)->Close();
  if (!bytes.ok() || !closed.ok()) return write_error(path, closed.message());
  counts.bytes = *bytes;
  return counts;
} catch (const parquet::ParquetException& e) {
  return write_error(path, e.what());
} catch (const std::bad_alloc&) {
  return Error(
      Code::kOutOfMemory,
      fmt::format("cannot write {}: no memory; fewer --threads or --row-group-rows take less",
                  path.string()));
}

}  // namespace paceline::data::synth
