// Values, keys and whole configs as TOML text.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline {

// The shortest text that reads back to the same value, with a point or exponent.
std::string number_text(double value);
// In quotes.
std::string string_text(std::string_view value);

template <typename T, typename F>
std::string list_text(const std::vector<T>& values, F&& one) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + one(values[i]);
  return text + "]";
}

// Replaces every [number] by [], so that a key of one entry is known for all of them.
std::string without_indices(std::string_view key);
// `general` with the indices of `key` in place of its [], as far as there are any.
std::string with_indices(const std::string& general, std::string_view key);

// How many entries each array of tables has, by its key.
using TableCounts = std::map<std::string, std::size_t, std::less<>>;

// The values used as TOML: sections in the order of their first key, then arrays of tables, each
// entry with what is below it. `used`: (key, value as TOML).
std::string config_text(const std::vector<std::pair<std::string, std::string>>& used,
                        const TableCounts& tables);
// The same with the arrays that the keys tell of; one without entries leaves nothing.
std::string config_text(const std::vector<std::pair<std::string, std::string>>& used);

}  // namespace paceline
