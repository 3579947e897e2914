#include "data/score_writer.hpp"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace paceline::data {
namespace fs = std::filesystem;
namespace {

Error arrow_error(const std::string& what, const fs::path& path, const arrow::Status& status) {
  return Error(Code::kIo, fmt::format("cannot {} {}: {}", what, path.string(), status.message()));
}

template <typename Builder, typename T>
std::shared_ptr<arrow::Array> array_of(const std::vector<T>& values) {
  Builder builder;
  std::shared_ptr<arrow::Array> out;
  const arrow::Status status = builder.AppendValues(values);
  PL_CHECK(status.ok() && builder.Finish(&out).ok(), "memory for a column of scores");
  return out;
}

std::shared_ptr<arrow::Array> list_of(const std::shared_ptr<arrow::Array>& offsets,
                                      const std::shared_ptr<arrow::Array>& values) {
  auto list = arrow::ListArray::FromArrays(*offsets, *values);
  PL_CHECK(list.ok(), "offsets of a list column");
  return *list;
}

}  // namespace

struct ScoreWriter::Impl {
  fs::path out, temporary;
  std::vector<int> scalars, candidates;  // columns of the row blocks
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  bool finished = false;
};

ScoreWriter::ScoreWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ScoreWriter::~ScoreWriter() {
  if (impl_->finished) return;
  if (impl_->writer) (void)impl_->writer->Close();
  if (impl_->stream) (void)impl_->stream->Close();
  std::error_code ignored;
  fs::remove(impl_->temporary, ignored);
}

Result<std::unique_ptr<ScoreWriter>> ScoreWriter::create(
    const fs::path& out, const features::Schema& schema,
    const std::vector<std::string>& score_names) {
  auto impl = std::make_unique<Impl>();
  impl->out = out;
  impl->temporary = out.string() + fmt::format(".tmp-{}", ::getpid());
  std::vector<std::shared_ptr<arrow::Field>> fields;
  const auto& columns = schema.columns();
  for (const int c : {schema.user_column(), schema.time_column()}) {
    if (c == features::kNoColumn) continue;
    impl->scalars.push_back(c);
    fields.push_back(
        arrow::field(columns[static_cast<std::size_t>(c)].name, arrow::int64(), false));
  }
  const auto list_type = [](std::shared_ptr<arrow::DataType> type) {
    return arrow::list(arrow::field("element", std::move(type), false));
  };
  for (const auto& feature :
       schema.kinds()[static_cast<std::size_t>(schema.candidate_kind())].features) {
    const auto& seen = impl->candidates;
    if (feature.kind != features::Kind::kId ||
        std::find(seen.begin(), seen.end(), feature.column) != seen.end()) {
      continue;
    }
    impl->candidates.push_back(feature.column);
    fields.push_back(arrow::field(columns[static_cast<std::size_t>(feature.column)].name,
                                  list_type(arrow::int64()), false));
  }
  for (const auto& name : score_names) {
    fields.push_back(arrow::field(name, list_type(arrow::float32()), false));
  }
  impl->schema = arrow::schema(std::move(fields));

  // From here on the destructor removes the temporary file.
  std::unique_ptr<ScoreWriter> self(new ScoreWriter(std::move(impl)));
  Impl* const w = self->impl_.get();
  auto stream = arrow::io::FileOutputStream::Open(w->temporary.string());
  if (!stream.ok()) return arrow_error("write", out, stream.status());
  w->stream = *stream;
  auto properties =
      parquet::WriterProperties::Builder().compression(parquet::Compression::ZSTD)->build();
  auto writer = parquet::arrow::FileWriter::Open(*w->schema, arrow::default_memory_pool(),
                                                 w->stream, properties);
  if (!writer.ok()) return arrow_error("write", out, writer.status());
  w->writer = std::move(*writer);
  return self;
}

Result<void> ScoreWriter::append(const features::RowBlock& block,
                                 std::span<const std::vector<float>> scores) {
  if (block.rows == 0) return {};
  auto& w = *impl_;
  std::vector<std::int32_t> starts(block.candidate_offsets.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = static_cast<std::int32_t>(block.candidate_offsets[i]);
  }
  const auto offsets = array_of<arrow::Int32Builder>(starts);
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const int c : w.scalars) {
    arrays.push_back(
        array_of<arrow::Int64Builder>(block.columns[static_cast<std::size_t>(c)].ints));
  }
  for (const int c : w.candidates) {
    arrays.push_back(list_of(
        offsets, array_of<arrow::Int64Builder>(block.columns[static_cast<std::size_t>(c)].ints)));
  }
  for (const auto& column : scores) {
    PL_CHECK(column.size() == static_cast<std::size_t>(block.candidate_offsets.back()),
             "one score per candidate");
    arrays.push_back(list_of(offsets, array_of<arrow::FloatBuilder>(column)));
  }
  // Lists declare their elements not null; the arrays above hold the same data under the default
  // name.
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    auto data = arrays[i]->data()->Copy();
    data->type = w.schema->field(static_cast<int>(i))->type();
    arrays[i] = arrow::MakeArray(data);
  }
  const auto table = arrow::Table::Make(w.schema, std::move(arrays), block.rows);
  const arrow::Status status = w.writer->WriteTable(*table, block.rows);
  if (!status.ok()) return arrow_error("write", w.out, status);
  return {};
}

Result<void> ScoreWriter::finish() {
  auto& w = *impl_;
  arrow::Status status = w.writer->Close();
  if (status.ok()) status = w.stream->Close();
  if (!status.ok()) return arrow_error("write", w.out, status);
  std::error_code error;
  fs::rename(w.temporary, w.out, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot rename {} to {}: {}", w.temporary.string(),
                                        w.out.string(), error.message()));
  }
  w.finished = true;
  return {};
}

}  // namespace paceline::data
