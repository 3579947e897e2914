#include "data/column_guess.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <set>

#include "core/config.hpp"
#include "core/config_text.hpp"

namespace paceline::data {

using features::Element;
using features::Shape;

namespace {

bool is_oracle(const std::string& name) { return has_any(lower(name), {"oracle"}); }

// The stem of a name that begins with one of the prefixes.
std::optional<std::string> stem_of(const std::string& name,
                                   std::initializer_list<std::string_view> prefixes) {
  const auto n = lower(name);
  for (const auto prefix : prefixes) {
    if (n.starts_with(prefix) && n.size() > prefix.size()) return name.substr(prefix.size());
  }
  return {};
}

}  // namespace

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_time(const std::string& name) {
  const auto n = lower(name);
  return has_any(n, {"time", "created", "date", "posted", "published", "_ts"}) || n == "ts";
}
bool is_mask(const std::string& name) {
  return has_any(lower(name), {"action", "mask", "flags", "bits", "apps"});
}
bool is_answer(const std::string& name) { return has_any(lower(name), {"dwell", "watch"}); }

int label_rank(const std::string& stem) {
  constexpr std::array<std::string_view, 7> kWords{"action", "label",    "event",  "engagement",
                                                   "click",  "feedback", "clicked"};
  std::string word = lower(stem);
  for (const std::string_view end : {"_mask", "_masks", "_bits", "_flags"}) {
    if (word.ends_with(end)) word.resize(word.size() - end.size());
  }
  if (word.ends_with('s')) word.pop_back();
  const auto at = std::find(kWords.begin(), kWords.end(), word);
  return at == kWords.end() ? -1 : static_cast<int>(at - kWords.begin());
}

// Some word of the name says what a candidate is before anyone has seen it.
bool describes_candidate(const std::string& stem) {
  static const std::set<std::string_view> kWords{
      "id",       "ids",   "item",     "author", "video",   "post",   "topic",  "category",
      "surface",  "lang",  "language", "code",   "country", "format", "genre",  "type",
      "position", "rank",  "source",   "price",  "length",  "size",   "hour",   "age",
      "tag",      "brand", "cluster",  "query",  "media",   "slot",   "channel"};
  const std::string n = lower(stem);
  if (is_time(n) || n.ends_with("id")) return true;
  std::string word;
  for (std::size_t i = 0; i <= n.size(); ++i) {
    if (i < n.size() && std::isalnum(static_cast<unsigned char>(n[i])) != 0) {
      word += n[i];
      continue;
    }
    if (kWords.count(word) > 0) return true;
    if (word.ends_with("ies")) word.replace(word.size() - 3, 3, "y");
    if (word.ends_with('s')) word.pop_back();
    if (kWords.count(word) > 0) return true;
    word.clear();
  }
  return false;
}

bool may_be_label(const Guess& g) {
  constexpr std::size_t kFew = 4096;
  if (g.shape != Shape::kCandidateList || element_of(*g.column) == Element::kFloat) return false;
  return !describes_candidate(g.stem) && (g.sample == nullptr || g.sample->distinct.size() <= kFew);
}

Element element_of(const FileColumn& column) {
  return column.form == Form::kBoolLists                                      ? Element::kMask
         : column.form == Form::kInteger || column.form == Form::kIntegerList ? Element::kInt64
                                                                              : Element::kFloat;
}

// Smallest and largest value by footer or sample; nothing known: all integers.
std::pair<double, double> range_of(const Guess& g) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  if (g.column->has_range) low = g.column->min, high = g.column->max;
  if (g.sample != nullptr) low = std::min(low, g.sample->min), high = std::max(high, g.sample->max);
  if (low > high) return {high, low};
  return {low, high};
}

// Columns by what their names say. What cannot be part of a config is noted.
std::vector<Guess> guesses_of(const FileColumns& file, std::string& notes) {
  std::vector<Guess> guesses;
  std::set<std::string> seen;
  for (const auto& column : file.columns) {
    if (column.form == Form::kOther) continue;
    const auto skip = [&](std::string_view why) {
      notes += fmt::format("#   {}: {}\n", string_text(column.name), why);
    };
    if (!Config::parse("name = " + string_text(column.name), "name").ok() || column.name.empty()) {
      notes += "#   a column whose name is empty or not UTF-8\n";
      continue;
    }
    if (!seen.insert(column.name).second) {
      skip("a name that another column has too");
      continue;
    }
    if (is_oracle(column.name)) {
      skip("the true probabilities of a synthetic world, not known before the request");
      continue;
    }
    Guess g{&column, nullptr, column.name, Shape::kScalar};
    if (column.is_list()) {
      const auto history = stem_of(column.name, {"history_", "hist_", "history.", "hist."});
      const auto candidate = stem_of(column.name, {"candidates_", "candidate_", "cand_",
                                                   "candidates.", "candidate.", "cand."});
      if (!history && !candidate) {
        skip(column.type + ": its name begins with neither history_ nor candidate_");
        continue;
      }
      g.shape = history ? Shape::kHistoryList : Shape::kCandidateList;
      g.stem = history ? *history : *candidate;
    }
    guesses.push_back(std::move(g));
  }
  return guesses;
}

}  // namespace paceline::data
