#include "core/config_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/config.hpp"

namespace paceline {

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string string_text(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string without_indices(std::string_view key) {
  std::string out;
  bool inside = false;
  for (const char c : key) {
    if (c == '[') inside = true;
    if (!inside || c == '[') out += c;
    if (c == ']') {
      inside = false;
      out += c;
    }
  }
  return out;
}

std::string with_indices(const std::string& general, std::string_view key) {
  std::string out;
  std::size_t from = 0;
  for (const char c : general) {
    if (c == ']' && key.find('[', from) != std::string_view::npos) {
      const std::size_t open = key.find('[', from) + 1;
      from = key.find(']', open);
      out += key.substr(open, from - open);
    }
    out += c;
  }
  return out;
}

namespace {

std::string key_text(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  return bare ? name : string_text(name);
}

class Writer {
 public:
  explicit Writer(const TableCounts& tables) : tables_(tables) {}

  void add(const std::string& key, const std::string& value) {
    const std::size_t dot = key.rfind('.');
    const bool is_top = dot == std::string::npos;
    block(is_top ? "" : key.substr(0, dot)) +=
        fmt::format("{} = {}\n", key_text(is_top ? key : key.substr(dot + 1)), value);
  }

  // All of `place`: "" or one entry of an array of tables, as in "features[2]".
  void write(const std::string& place) {
    for (const Block& b : blocks_) {
      if (b.place == place) text_ += b.lines;
    }
    for (const Block& b : blocks_) {
      if (!is_section_of(place, b.place)) continue;
      text_ += fmt::format("{}[{}]\n{}", text_.empty() ? "" : "\n", header(b.place), b.lines);
    }
    for (const auto& [table, count] : tables_) {
      if (!is_section_of(place, table)) continue;
      for (std::size_t i = 0; i < count; ++i) {
        text_ += fmt::format("\n[[{}]]\n", header(table));
        write(fmt::format("{}[{}]", table, i));
      }
    }
  }

  const std::string& text() const { return text_; }

 private:
  struct Block {
    std::string place;
    std::string lines;
  };

  std::string& block(const std::string& place) {
    for (Block& b : blocks_) {
      if (b.place == place) return b.lines;
    }
    blocks_.push_back({place, ""});
    return blocks_.back().lines;
  }

  // Below `place` with no entry of another array in between?
  static bool is_section_of(std::string_view place, std::string_view section) {
    if (!place.empty()) {
      if (section.size() <= place.size() || section.substr(0, place.size()) != place) return false;
      if (section[place.size()] != '.') return false;
      section.remove_prefix(place.size() + 1);
    }
    return !section.empty() && section.find('[') == std::string_view::npos;
  }

  // A header means the latest entry of each array that it names.
  static std::string header(std::string_view place) {
    std::string out;
    for (const char c : without_indices(place)) {
      if (c != '[' && c != ']') out += c;
    }
    return out;
  }

  const TableCounts& tables_;
  std::vector<Block> blocks_;
  std::string text_;
};

}  // namespace

std::string config_text(const std::vector<std::pair<std::string, std::string>>& used,
                        const TableCounts& tables) {
  Writer writer(tables);
  for (const auto& [key, value] : used) writer.add(key, value);
  writer.write("");
  return writer.text();
}

std::string config_text(const std::vector<std::pair<std::string, std::string>>& used) {
  TableCounts tables;
  for (const auto& [key, value] : used) {
    for (auto open = key.find('['); open != std::string::npos; open = key.find('[', open + 1)) {
      const auto index =
          static_cast<std::size_t>(std::strtoull(key.c_str() + open + 1, nullptr, 10));
      auto& count = tables[key.substr(0, open)];
      count = std::max(count, std::min(index + 1, used.size()));  // no entry is without a key
    }
  }
  return config_text(used, tables);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = word.size() / 3 + 2;  // farther is no help
  for (const auto& candidate : candidates) {
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t substituted = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace paceline
