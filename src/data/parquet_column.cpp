#include "data/parquet_column.hpp"

#include <fmt/format.h>

#include <array>

#include "core/config.hpp"

namespace paceline::data {
namespace {

using features::Element;
using features::Shape;
using parquet::Type;

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

constexpr std::int16_t kMostLevels = 100;

bool walk(const parquet::schema::Node& root, std::string member, Nesting& s) {
  const auto* node = &root;
  for (;;) {
    // Levels are read in at most 7 bits; no list of ours comes near.
    if (s.def >= kMostLevels) return false;
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

}  // namespace

Result<ParquetColumn> match_column(const parquet::SchemaDescriptor& file,
                                   const features::Column& wanted) {
  const auto* root = file.group_node();
  int field = root->FieldIndex(wanted.name);
  int same = 0;
  for (int i = 0; i < root->field_count(); ++i) {
    same += root->field(i)->name() == wanted.name ? 1 : 0;
  }
  if (same > 1) {
    return Error(Code::kInvalidArgument,
                 fmt::format("column {}: found twice, allowed is one of this name", wanted.name));
  }
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

}  // namespace paceline::data
