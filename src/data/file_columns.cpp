#include "data/file_columns.hpp"

#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <fmt/format.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "data/parquet_column.hpp"
#include "data/parquet_file.hpp"

namespace paceline::data {
namespace {

using features::Element;
using features::Shape;

// "list<int64>" for list<element: int64>, whatever its element is called.
std::string type_text(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      return fmt::format("list<{}>", type_text(*type.field(0)->type()));
    case arrow::Type::STRUCT: {
      std::string inner;
      for (const auto& field : type.fields()) {
        inner += fmt::format("{}{}: {}", inner.empty() ? "" : ", ", field->name(),
                             type_text(*field->type()));
      }
      return fmt::format("struct<{}>", inner);
    }
    default:
      return type.ToString();
  }
}

// What makes a column of this type usable.
std::string_view cast_hint(std::string_view type) {
  const std::size_t list = type.rfind("list<");
  const auto inner = list == std::string_view::npos ? type : type.substr(list + 5);
  const auto is = [&](std::string_view word) { return inner.starts_with(word); };
  if (is("timestamp") || is("date") || is("time")) return "; cast it to int64 seconds";
  if (is("bool")) return "; cast it to an integer";
  if (is("decimal") || is("halffloat")) return "; cast it to float";
  if (is("string") || is("large_string") || is("dictionary")) {
    return "; as an id, hash or number it to int64";
  }
  return "";
}

void find_form(const parquet::SchemaDescriptor& schema, FileColumn& column) {
  const auto readable = [&](Shape shape, Element element) {
    auto matched = match_column(schema, {column.name, shape, element});
    if (!matched) column.why_not = matched.error().message();
    return matched.ok();
  };
  column.form = readable(Shape::kScalar, Element::kInt64)         ? Form::kInteger
                : readable(Shape::kScalar, Element::kFloat)       ? Form::kNumber
                : readable(Shape::kHistoryList, Element::kInt64)  ? Form::kIntegerList
                : readable(Shape::kHistoryList, Element::kFloat)  ? Form::kNumberList
                : readable(Shape::kCandidateList, Element::kMask) ? Form::kBoolLists
                                                                  : Form::kOther;
  if (column.form != Form::kOther) {
    column.why_not.clear();
  } else {
    column.why_not = fmt::format(
        "found {}, allowed are integers, floats, lists of these and lists of lists of bool{}",
        column.type, cast_hint(column.type));
  }
}

template <typename DType>
void widen(const parquet::Statistics& statistics, FileColumn& column) {
  const auto& typed = static_cast<const parquet::TypedStatistics<DType>&>(statistics);
  column.min = std::min(column.min, static_cast<double>(typed.min()));
  column.max = std::max(column.max, static_cast<double>(typed.max()));
}

void add_range(const parquet::Statistics* statistics, FileColumn& column) {
  if (statistics == nullptr || !statistics->HasMinMax()) {
    column.has_range = column.has_range && statistics != nullptr && statistics->num_values() == 0;
    return;
  }
  switch (statistics->physical_type()) {
    case parquet::Type::INT32:
      return widen<parquet::Int32Type>(*statistics, column);
    case parquet::Type::INT64:
      return widen<parquet::Int64Type>(*statistics, column);
    case parquet::Type::FLOAT:
      return widen<parquet::FloatType>(*statistics, column);
    case parquet::Type::DOUBLE:
      return widen<parquet::DoubleType>(*statistics, column);
    default:
      column.has_range = false;
  }
}

void add_chunk(const parquet::ColumnChunkMetaData& chunk, FileColumn& column) {
  column.values += chunk.num_values();
  column.compressed_bytes += chunk.total_compressed_size();
  column.uncompressed_bytes += chunk.total_uncompressed_size();
  column.codecs.insert(arrow::util::Codec::GetCodecAsString(chunk.compression()));
  for (const auto encoding : chunk.encodings()) {
    column.encodings.insert(parquet::EncodingToString(encoding));
  }
  const auto statistics = chunk.statistics();
  if (statistics == nullptr || !statistics->HasNullCount()) {
    column.nulls = -1;
  } else if (column.nulls >= 0) {
    column.nulls += statistics->null_count();
  }
  add_range(statistics.get(), column);
}

// The struct of a column that is one, or a list of them; else null.
const parquet::schema::GroupNode* struct_of(const parquet::schema::Node& root) {
  const auto* node = &root;
  for (int depth = 0; depth < 3 && node->is_group(); ++depth) {
    const auto* group = static_cast<const parquet::schema::GroupNode*>(node);
    const auto& logical = node->logical_type();
    const bool list = logical && logical->is_list();
    const bool element = node->is_repeated() && group->field_count() == 1 &&
                         group->field(0)->is_group() && depth == 1;
    if (!list && !element) return logical && logical->is_map() ? nullptr : group;
    if (group->field_count() != 1) return nullptr;
    node = group->field(0).get();
  }
  return nullptr;
}

// The type of a struct's field, in a column that is a struct or a list of them.
std::string member_type(const arrow::DataType& type, const std::string& member) {
  const bool list = arrow::is_list_like(type.id());
  const auto& inner = list ? *type.field(0)->type() : type;
  for (const auto& field : inner.fields()) {
    if (field->name() != member) continue;
    const auto text = type_text(*field->type());
    return list ? fmt::format("list<{}>", text) : text;
  }
  return "a type that Arrow does not know";
}

// Columns as a schema can name them, and which of them each leaf of the file belongs to.
struct Layout {
  std::vector<FileColumn> columns;
  std::map<const parquet::schema::Node*, std::size_t> column_of;

  void add(const parquet::SchemaDescriptor& schema, const parquet::schema::Node& node,
           std::string name, std::string type) {
    FileColumn column;
    column.name = std::move(name);
    column.type = std::move(type);
    find_form(schema, column);
    column_of[&node] = columns.size();
    columns.push_back(std::move(column));
  }
};

Layout layout_of(const parquet::SchemaDescriptor& schema) {
  const auto* root = schema.group_node();
  std::shared_ptr<arrow::Schema> types;
  if (!parquet::arrow::FromParquetSchema(&schema, &types).ok()) types = nullptr;
  Layout layout;
  for (int i = 0; i < root->field_count(); ++i) {
    const auto& field = *root->field(i);
    const bool typed = types != nullptr && i < types->num_fields();
    const std::string unknown = "a type that Arrow does not know";
    const auto* members = struct_of(field);
    layout.add(schema, field, field.name(), typed ? type_text(*types->field(i)->type()) : unknown);
    if (members == nullptr || layout.columns.back().form != Form::kOther) continue;
    layout.columns.pop_back();
    for (int m = 0; m < members->field_count(); ++m) {
      const auto& member = members->field(m)->name();
      layout.add(schema, *members->field(m), field.name() + "." + member,
                 typed ? member_type(*types->field(i)->type(), member) : unknown);
    }
  }
  return layout;
}

FileColumns columns_of(const parquet::FileMetaData& footer) {
  FileColumns file;
  file.rows = footer.num_rows();
  const auto& schema = *footer.schema();
  auto layout = layout_of(schema);
  file.columns = std::move(layout.columns);
  std::vector<std::size_t> column_of_leaf;
  for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
    const auto* node = schema.Column(leaf)->schema_node().get();
    auto at = layout.column_of.find(node);
    while (at == layout.column_of.end() && node->parent() != nullptr) {
      node = node->parent();
      at = layout.column_of.find(node);
    }
    // A struct without fields has no column.
    const bool known = at != layout.column_of.end() && at->second < file.columns.size();
    column_of_leaf.push_back(known ? at->second : file.columns.size());
  }
  for (int g = 0; g < footer.num_row_groups(); ++g) {
    const auto group = footer.RowGroup(g);
    for (std::size_t leaf = 0; leaf < column_of_leaf.size(); ++leaf) {
      if (column_of_leaf[leaf] == file.columns.size()) continue;
      add_chunk(*group->ColumnChunk(static_cast<int>(leaf)), file.columns[column_of_leaf[leaf]]);
    }
  }
  for (auto& column : file.columns) {
    column.has_range = column.has_range && column.min <= column.max;
  }
  return file;
}

}  // namespace

void FileColumn::add(const FileColumn& other) {
  values += other.values;
  nulls = nulls < 0 || other.nulls < 0 ? -1 : nulls + other.nulls;
  compressed_bytes += other.compressed_bytes;
  uncompressed_bytes += other.uncompressed_bytes;
  codecs.insert(other.codecs.begin(), other.codecs.end());
  encodings.insert(other.encodings.begin(), other.encodings.end());
  has_range = (has_range || values == other.values) && (other.has_range || other.values == 0);
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

const FileColumn* FileColumns::find(const std::string& name) const {
  for (const auto& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

Result<FileColumns> file_columns(const DatasetFile& file) {
  PL_TRY(const auto reader, open_file(file, nullptr));
  auto columns = guarded([&]() -> Result<FileColumns> { return columns_of(*reader->metadata()); });
  if (!columns) return at(std::move(columns.error()), file.path);
  return columns;
}

}  // namespace paceline::data
