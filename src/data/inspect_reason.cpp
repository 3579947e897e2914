#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "data/inspect.hpp"

namespace paceline::data {
namespace {

using Words = std::pair<std::string_view, std::string_view>;  // of a message, and what it is called

// Of a message without its place and the name of its column.
constexpr std::array<Words, 6> kOfRows{{
    {"found null", "null"},
    {"found a null", "null in a list"},
    {"its list has ", "lists of other lengths"},
    {"found no candidates", "no candidates"},
    {"found a list of more than 64 bool", "more than 64 bool"},
    {"found ", "not a finite 32-bit float"},
}};
constexpr std::array<Words, 5> kOfPlaces{{
    {"not a complete Parquet file", "not a complete Parquet file"},
    {"found 0 bytes, allowed is a Parquet file", "not a complete Parquet file"},
    {"longer than batch.tokens", "longer than batch.tokens"},
    {"declares up to ", "more memory than this machine has"},
    {"no memory for its values", "more memory than this machine has"},
}};

// `why` without the file and the row group that most messages begin with.
std::string_view without_place(std::string_view why, std::string_view file) {
  if (why.starts_with(file)) why.remove_prefix(file.size());
  constexpr std::string_view kGroup = ", row group ";
  if (why.starts_with(kGroup)) {
    why.remove_prefix(kGroup.size());
    while (!why.empty() && std::isdigit(static_cast<unsigned char>(why.front())) != 0) {
      why.remove_prefix(1);
    }
  }
  if (why.starts_with(": ")) why.remove_prefix(2);
  return why;
}

RefusalKind kind_of_row(std::string_view column, std::string_view what) {
  for (const auto& [words, name] : kOfRows) {
    if (what.starts_with(words)) return {std::string(name), std::string(column)};
  }
  return {"cannot be read", std::string(column)};
}

}  // namespace

RefusalKind kind_of(const std::string& why, const std::string& file) {
  constexpr std::string_view kColumn = "column ";
  constexpr std::string_view kNoColumn = "no column ";
  constexpr std::string_view kRows = " (rows count from 0): ";
  std::string_view text = without_place(why, file);
  if (text.starts_with(kNoColumn)) {
    text.remove_prefix(kNoColumn.size());
    return {"missing column", std::string(text.substr(0, text.find("; found: ")))};
  }
  if (text.starts_with(kColumn)) {
    text.remove_prefix(kColumn.size());
    if (const auto at = text.find(kRows); at != std::string_view::npos) {
      const auto name = text.substr(0, text.rfind(", row ", at));
      return kind_of_row(name, text.substr(at + kRows.size()));
    }
    const auto end = text.find(": ");
    const std::string name(text.substr(0, end));
    const auto what = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
    const bool type = what.starts_with("found ") && what.find(", allowed is ") != what.npos;
    return {type ? "another type" : "cannot be read", name};
  }
  for (const auto& [words, name] : kOfPlaces) {
    if (text.find(words) != std::string_view::npos) return {std::string(name), ""};
  }
  return {"cannot be read", ""};
}

}  // namespace paceline::data
