// What a Parquet file's footer says about its columns, whatever a schema wants of them.
// Reads the footer only.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/dataset_files.hpp"

namespace paceline::data {

// How a schema can read a column.
enum class Form : std::uint8_t {
  kOther,  // not at all
  kInteger,
  kNumber,  // not an integer
  kIntegerList,
  kNumberList,
  kBoolLists,  // list of lists of bool: masks
};

struct FileColumn {
  std::string name;  // "a.b": field b of the structs in column a
  std::string type;  // "int64", "list<float>"
  Form form = Form::kOther;
  std::string why_not;      // kOther: found and allowed
  std::int64_t values = 0;  // elements of lists; an empty or null list counts as one
  std::int64_t nulls = 0;   // of these, null or an empty list; -1 when a row group does not say
  std::int64_t compressed_bytes = 0, uncompressed_bytes = 0;
  std::set<std::string> codecs, encodings;
  // Smallest and largest value, when every row group with values says so.
  bool has_range = true;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  bool is_list() const {
    return form == Form::kIntegerList || form == Form::kNumberList || form == Form::kBoolLists;
  }
  // Adds the same column of another file; the forms must be equal.
  void add(const FileColumn& other);
};

struct FileColumns {
  std::int64_t rows = 0;
  std::vector<FileColumn> columns;  // in the order of the file

  const FileColumn* find(const std::string& name) const;
};

// Errors: kIo, kCorruptData (not a complete Parquet file), naming the path.
Result<FileColumns> file_columns(const DatasetFile& file);

}  // namespace paceline::data
