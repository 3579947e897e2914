#include "data/parquet_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "core/config.hpp"

namespace paceline::data {
namespace {

using features::Element;
using features::Shape;
using parquet::Type;

// Levels and values handled at a time: they stay in the first-level cache.
constexpr std::int64_t kChunk = 4096;
constexpr std::int64_t kMaxHint = std::int64_t{1} << 26;
constexpr int kLanes = 32;

std::string type_text(const parquet::schema::Node& node) {
  if (node.is_group()) {
    const auto& group = static_cast<const parquet::schema::GroupNode&>(node);
    std::string inner;
    for (int i = 0; i < group.field_count(); ++i) {
      inner += (i > 0 ? ", " : "") + type_text(*group.field(i));
    }
    if (node.is_repeated() && group.field_count() == 1) return inner;
    const auto& logical = node.logical_type();
    return (logical && logical->is_list() ? "list<" : "struct<") + inner + ">";
  }
  const auto& leaf = static_cast<const parquet::schema::PrimitiveNode&>(node);
  std::string text = parquet::TypeToString(leaf.physical_type());
  const auto& logical = node.logical_type();
  if (logical && !logical->is_none() && !logical->is_invalid()) {
    text += " (" + logical->ToString() + ")";
  }
  return text;
}

const char* allowed_text(const features::Column& wanted) {
  const bool list = wanted.shape != Shape::kScalar;
  switch (wanted.element) {
    case Element::kInt64:
      return list ? "a list of integers (int8 to int64, uint8 to uint64)"
                  : "an integer (int8 to int64, uint8 to uint64)";
    case Element::kFloat:
      return list ? "a list of numbers (float, double or integers)"
                  : "a number (float, double or an integer)";
    case Element::kMask:
      return list ? "a list of integers used as bit masks, or a list of lists of at most 64 bool"
                  : "an integer used as a bit mask";
  }
  return "";
}

// Walks from the column's root to its one leaf, noting the levels of the lists on the way. A
// struct is entered at its field `member`, once.
struct Nesting {
  const parquet::schema::PrimitiveNode* leaf = nullptr;
  int depth = 0;  // lists
  std::int16_t def = 0;
  std::array<std::int16_t, 2> list_def{};
};

bool walk(const parquet::schema::Node& root, std::string member, Nesting& s) {
  const auto* node = &root;
  for (;;) {
    if (node->is_optional()) ++s.def;
    if (node->is_repeated()) {
      if (s.depth == 2) return false;
      ++s.def;
      s.list_def[static_cast<std::size_t>(s.depth)] = s.def;
      ++s.depth;
    }
    if (node->is_primitive()) {
      s.leaf = static_cast<const parquet::schema::PrimitiveNode*>(node);
      return member.empty();
    }
    const auto* group = static_cast<const parquet::schema::GroupNode*>(node);
    const bool list = node->logical_type() && node->logical_type()->is_list();
    // Only lists, the repeated groups inside them and that struct are looked through.
    int field = 0;
    if (group->field_count() != 1 || (!list && !node->is_repeated())) {
      if (member.empty()) return false;
      field = group->FieldIndex(member);
      if (field < 0) return false;
      member.clear();
    }
    node = group->field(field).get();
  }
}

bool usable(const parquet::schema::PrimitiveNode& leaf, Element element, int depth) {
  const auto type = leaf.physical_type();
  const auto& logical = leaf.logical_type();
  const bool plain = !logical || logical->is_none() || logical->is_invalid() || logical->is_int();
  if (!plain) return false;
  if (depth == 2) return element == Element::kMask && type == Type::BOOLEAN;
  const bool integer = type == Type::INT32 || type == Type::INT64;
  if (element == Element::kFloat) return integer || type == Type::FLOAT || type == Type::DOUBLE;
  return integer;
}

Error bad_row(const ParquetColumn& c, std::int64_t row, const std::string& what) {
  return Error(Code::kCorruptData,
               fmt::format("column {}, row {} (rows count from 0): {}", c.wanted.name, row, what));
}

// Grows to hold `needed`; what a vector already holds is never filled again.
template <typename T>
void reserve_values(std::vector<T>& v, std::int64_t needed) {
  const auto n = static_cast<std::size_t>(needed);
  if (v.size() < n) v.resize(std::max(n, std::min(v.capacity(), n + n / 2)));
}

template <typename Out, typename In>
Out convert(In value, bool is_unsigned) {
  if constexpr (std::is_integral_v<In>) {
    if (is_unsigned) {
      return static_cast<Out>(static_cast<std::make_unsigned_t<In>>(value));
    }
  }
  return static_cast<Out>(value);
}

// Turns levels into list boundaries, or compares them with those of another column.
class ListCursor {
 public:
  ListCursor(const ParquetColumn& column, std::int64_t rows, std::int64_t first_row, bool first,
             std::vector<std::int64_t>& offsets)
      : column_(column), rows_(rows), first_row_(first_row), first_(first), offsets_(offsets) {}

  Result<void> take(const std::int16_t* def, const std::int16_t* rep, std::int64_t n) {
    std::int64_t i = 0;
    while (i + kLanes <= n) {
      // Within a list, with a value each: nothing to note.
      int other = 0;
#pragma omp simd reduction(| : other)
      for (int k = 0; k < kLanes; ++k) {
        other |= (def[i + k] ^ column_.max_def) | (rep[i + k] ^ std::int16_t{1});
      }
      if (other == 0 && row_ >= 0) {
        values_ += kLanes;
      } else {
        PL_TRY_VOID(take_each(def + i, rep + i, kLanes));
      }
      i += kLanes;
    }
    return take_each(def + i, rep + i, n - i);
  }

  // All rows must be there, with the last one's length.
  Result<void> finish() {
    PL_TRY_VOID(boundary());
    if (row_ != rows_) {
      return Error(Code::kCorruptData, fmt::format("column {}: {} rows where {} are declared",
                                                   column_.wanted.name, row_, rows_));
    }
    return {};
  }

  std::int64_t values() const { return values_; }
  std::int64_t row() const { return first_row_ + row_; }

 private:
  Result<void> take_each(const std::int16_t* def, const std::int16_t* rep, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (rep[i] == 0) {
        PL_TRY_VOID(boundary());
        if (row_ >= rows_) {
          return Error(Code::kCorruptData, fmt::format("column {}: more rows than the {} declared",
                                                       column_.wanted.name, rows_));
        }
      } else if (row_ < 0) {
        return Error(Code::kCorruptData,
                     fmt::format("column {}: starts within a list", column_.wanted.name));
      }
      if (def[i] == column_.max_def) {
        ++values_;
      } else if (def[i] >= column_.list_def) {
        return bad_row(column_, row(), "found a null in the list, allowed are values");
      } else if (def[i] < column_.list_def - 1) {
        return bad_row(column_, row(), "found null, allowed is a list (it may be empty)");
      }
    }
    return {};
  }

  // The next row starts at value `values_`.
  Result<void> boundary() {
    ++row_;
    const auto r = static_cast<std::size_t>(row_);
    if (row_ > rows_) return {};
    if (first_) {
      offsets_[r] = values_;
    } else if (offsets_[r] != values_) {
      return bad_row(
          column_, row() - 1,
          fmt::format("its list has {} elements, the other {} columns have {} in this row",
                      values_ - offsets_[r - 1],
                      column_.wanted.shape == Shape::kHistoryList ? "history" : "candidate",
                      offsets_[r] - offsets_[r - 1]));
    }
    return {};
  }

  const ParquetColumn& column_;
  std::int64_t rows_, first_row_;
  bool first_;
  std::vector<std::int64_t>& offsets_;
  std::int64_t row_ = -1;
  std::int64_t values_ = 0;
};

Error short_column(const ParquetColumn& c, std::int64_t found, std::int64_t rows) {
  return Error(Code::kCorruptData, fmt::format("column {}: {} values where {} rows are declared",
                                               c.wanted.name, found, rows));
}

// Reads values of DType into `out` as Out, straight into place where both have one form.
template <typename DType, typename Out>
Result<void> read_values(parquet::ColumnReader& base, const ParquetColumn& c, std::int64_t rows,
                         std::int64_t first_row, std::int64_t hint, bool first,
                         std::vector<std::int64_t>& offsets, std::vector<Out>& out) {
  using In = typename DType::c_type;
  auto& reader = static_cast<parquet::TypedColumnReader<DType>&>(base);
  const bool list = c.max_rep > 0;
  ListCursor cursor(c, rows, first_row, first, offsets);
  std::array<std::int16_t, kChunk> def, rep;
  std::array<In, kChunk> scratch;
  std::int64_t count = 0;
  reserve_values(out, std::clamp<std::int64_t>(hint, 0, kMaxHint));
  while (reader.HasNext()) {
    reserve_values(out, count + kChunk);
    In* to = scratch.data();
    if constexpr (std::is_same_v<In, Out>) to = out.data() + count;
    std::int64_t read = 0;
    const std::int64_t n = reader.ReadBatch(kChunk, c.max_def > 0 ? def.data() : nullptr,
                                            list ? rep.data() : nullptr, to, &read);
    if (n == 0) break;
    if (list) {
      PL_TRY_VOID(cursor.take(def.data(), rep.data(), n));
      if (cursor.values() != count + read) return short_column(c, count + read, rows);
    } else {
      if (c.max_def > 0) {
        const auto* null = std::find_if(def.data(), def.data() + n,
                                        [&](std::int16_t d) { return d != c.max_def; });
        if (null != def.data() + n) {
          return bad_row(c, first_row + count + (null - def.data()),
                         "found null, allowed are values");
        }
      }
      if (count + read > rows) return short_column(c, count + read, rows);
    }
    if constexpr (!std::is_same_v<In, Out>) {
      Out* o = out.data() + count;
      for (std::int64_t i = 0; i < read; ++i) {
        o[i] = convert<Out>(scratch[static_cast<std::size_t>(i)], c.is_unsigned);
      }
    }
    count += read;
  }
  out.resize(static_cast<std::size_t>(count));
  if (list) return cursor.finish();
  if (count != rows) return short_column(c, count, rows);
  return {};
}

// list<list<bool>>: element i of an inner list is bit i of a mask.
Result<void> read_bools(parquet::ColumnReader& base, const ParquetColumn& c, std::int64_t rows,
                        std::int64_t first_row, bool first, std::vector<std::int64_t>& offsets,
                        std::vector<std::int64_t>& out) {
  auto& reader = static_cast<parquet::BoolReader&>(base);
  // The cursor sees one element per inner list.
  ParquetColumn outer = c;
  outer.max_def = c.list_def;
  outer.max_rep = 1;
  ListCursor cursor(outer, rows, first_row, first, offsets);
  std::array<std::int16_t, kChunk> def, rep;
  std::array<bool, kChunk> values;
  out.clear();
  int bit = 0;
  while (reader.HasNext()) {
    std::int64_t read = 0;
    const std::int64_t n = reader.ReadBatch(kChunk, def.data(), rep.data(), values.data(), &read);
    if (n == 0) break;
    std::size_t v = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      if (rep[i] < 2) {
        const bool element = def[i] >= c.list_def;
        const std::int16_t seen = std::min(def[i], c.list_def);
        PL_TRY_VOID(cursor.take(&seen, &rep[i], 1));
        if (!element) continue;
        out.push_back(0);
        bit = 0;
      }
      const bool empty = def[i] == c.inner_list_def - 1;
      if (empty) continue;
      if (def[i] != c.max_def) {
        return bad_row(c, cursor.row(), "found a null in the list, allowed are lists of bool");
      }
      if (bit == 64) {
        return bad_row(c, cursor.row(), "found a list of more than 64 bool, allowed are 64");
      }
      if (values[v++]) {
        out.back() = static_cast<std::int64_t>(static_cast<std::uint64_t>(out.back()) |
                                               (std::uint64_t{1} << bit));
      }
      ++bit;
    }
  }
  return cursor.finish();
}

// Finds the row of a value that is not finite.
Result<void> check_finite(const ParquetColumn& c, const std::vector<float>& values,
                          std::int64_t first_row, const std::vector<std::int64_t>& offsets) {
  // x - x is 0 exactly for finite x.
  float sum = 0.0F;
  const float* v = values.data();
  const std::size_t n = values.size();
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) sum += v[i] - v[i];
  if (sum == 0.0F) return {};
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  std::int64_t row = bad - values.begin();
  if (c.max_rep > 0) {
    row = std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin() - 1;
  }
  return bad_row(c, first_row + row,
                 fmt::format("found {}, allowed are finite numbers that fit a "
                             "32-bit float",
                             *bad));
}

}  // namespace

Result<ParquetColumn> match_column(const parquet::SchemaDescriptor& file,
                                   const features::Column& wanted) {
  const auto* root = file.group_node();
  int field = root->FieldIndex(wanted.name);
  std::string member;
  if (const auto dot = wanted.name.rfind('.'); field < 0 && dot != std::string::npos) {
    field = root->FieldIndex(wanted.name.substr(0, dot));
    member = wanted.name.substr(dot + 1);
  }
  if (field < 0) {
    std::vector<std::string> names;
    std::string list;
    for (int i = 0; i < root->field_count(); ++i) {
      names.push_back(root->field(i)->name());
      if (i < 20) list += (i > 0 ? ", " : "") + names.back();
    }
    const std::string near = nearest(wanted.name, names);
    return Error(Code::kNotFound,
                 fmt::format("no column {}; found: {}{}{}", wanted.name,
                             list.empty() ? "none" : list, names.size() > 20 ? ", ..." : "",
                             near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  const auto& node = *root->field(field);
  Nesting s;
  const bool list = wanted.shape != Shape::kScalar;
  const bool found = walk(node, member, s);
  const bool depth = list ? s.depth == 1 || s.depth == 2 : s.depth == 0;
  if (!found || !depth || !usable(*s.leaf, wanted.element, s.depth)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("column {}: found {}, allowed is {}", wanted.name, type_text(node),
                             allowed_text(wanted)));
  }
  ParquetColumn c;
  for (int i = 0; i < file.num_columns(); ++i) {
    if (file.Column(i)->schema_node().get() == s.leaf) c.leaf = i;
  }
  PL_CHECK(c.leaf >= 0, "a leaf of this file");
  c.wanted = wanted;
  c.max_def = file.Column(c.leaf)->max_definition_level();
  c.max_rep = file.Column(c.leaf)->max_repetition_level();
  c.list_def = s.list_def[0];
  c.inner_list_def = s.list_def[1];
  c.is_bools = s.depth == 2;
  if (const auto& logical = s.leaf->logical_type(); logical && logical->is_int()) {
    c.is_unsigned = !static_cast<const parquet::IntLogicalType&>(*logical).is_signed();
  }
  return c;
}

Result<void> read_column(parquet::ColumnReader& reader, const ParquetColumn& c, std::int64_t rows,
                         std::int64_t first_row, std::int64_t hint, bool first,
                         std::vector<std::int64_t>& offsets, features::ColumnValues& out) {
  if (first && c.max_rep > 0) offsets.resize(static_cast<std::size_t>(rows) + 1);
  const auto read = [&](auto type, auto& to) {
    return read_values<decltype(type)>(reader, c, rows, first_row, hint, first, offsets, to);
  };
  if (c.is_bools) return read_bools(reader, c, rows, first_row, first, offsets, out.ints);
  if (c.wanted.element != Element::kFloat) {
    return reader.type() == Type::INT32 ? read(parquet::Int32Type(), out.ints)
                                        : read(parquet::Int64Type(), out.ints);
  }
  switch (reader.type()) {
    case Type::FLOAT:
      PL_TRY_VOID(read(parquet::FloatType(), out.floats));
      break;
    case Type::DOUBLE:
      PL_TRY_VOID(read(parquet::DoubleType(), out.floats));
      break;
    case Type::INT32:
      PL_TRY_VOID(read(parquet::Int32Type(), out.floats));
      break;
    default:
      PL_TRY_VOID(read(parquet::Int64Type(), out.floats));
      break;
  }
  return check_finite(c, out.floats, first_row, offsets);
}

}  // namespace paceline::data
