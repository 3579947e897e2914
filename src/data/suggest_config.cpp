#include "data/suggest_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/config.hpp"
#include "core/config_text.hpp"
#include "data/column_guess.hpp"
#include "data/column_sample.hpp"
#include "data/dataset_files.hpp"
#include "data/file_columns.hpp"
#include "data/suggest_config_splits.hpp"
#include "data/synth/options.hpp"

namespace paceline::data {
namespace {

using features::Element;
using features::Shape;

constexpr std::int64_t kMostCategories = 1024;
constexpr std::int64_t kEveryRow = 256;  // rows after which an id that never came twice is noise
constexpr double kPlainNumber = 4.0;     // numbers up to this size enter the token as they are

class Writer {
 public:
  Writer(const FileColumns& file, const ColumnSample* sample, std::vector<Guess> guesses)
      : file_(file), sample_(sample), guesses_(std::move(guesses)) {}

  Result<void> choose();
  std::string text() const;
  bool has_labels() const { return actions_ != nullptr || !targets_.empty(); }

 private:
  struct Side {
    const Guess* history = nullptr;
    const Guess* candidate = nullptr;
  };
  const Guess* find(Shape shape, const std::string& stem) const;
  static std::string unique(std::string stem, std::set<std::string>& taken);
  void note(const std::string& column, std::string_view why) {
    notes_ += fmt::format("#   {}: {}\n", string_text(column), why);
  }
  void feature(const char* scope, const std::string& columns, const std::vector<const Guess*>& of);
  std::string kind(const std::vector<const Guess*>& of) const;
  std::string bucket_of_time(const Guess& g) const;
  std::string number_kind(const std::vector<const Guess*>& of, double low, double high) const;
  void side(const Side& s);
  void scalar(const Guess& g);
  void target(const Guess& g);
  void actions(const Guess* column);
  void find_actions();
  void find_columns();
  const char* name_of_bit(int bit) const;
  Error missing(const char* what) const;

  const FileColumns& file_;
  const ColumnSample* sample_;
  std::vector<Guess> guesses_;
  const Guess* user_ = nullptr;
  const Guess* time_ = nullptr;
  const Guess* actions_ = nullptr;
  bool synthetic_ = false;  // the file has the columns of the synthetic world's actions
  std::vector<const Guess*> suspects_;
  double second_ = 1.0;  // of the time columns' unit
  std::set<std::string> feature_names_, answer_names_;
  std::string features_, actions_text_, targets_, notes_;
};

const Guess* Writer::find(Shape shape, const std::string& stem) const {
  for (const auto& g : guesses_) {
    if (g.shape == shape && g.stem == stem) return &g;
  }
  return nullptr;
}

// A name as the schema allows it that is not taken yet.
std::string Writer::unique(std::string stem, std::set<std::string>& taken) {
  if (lower(stem).ends_with("_id")) stem.resize(stem.size() - 3);
  for (char& c : stem) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && c != '_' && c != '-' && c != '.') c = '_';
  }
  std::string name = stem;
  for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}_{}", stem, n);
  return name;
}

std::string Writer::bucket_of_time(const Guess& g) const {
  if (time_ == nullptr || &g == time_) {
    return fmt::format("kind = \"bucket\"\nunit = {}\nbuckets = 40\n", number_text(second_));
  }
  return fmt::format("kind = \"bucket\"\nminus = {}\nunit = {}\n", string_text(time_->column->name),
                     number_text(second_));
}

std::string Writer::number_kind(const std::vector<const Guess*>& of, double low,
                                double high) const {
  if (low >= -kPlainNumber && high <= kPlainNumber) return "kind = \"number\"\n";
  if (low >= 0) return "kind = \"bucket\"\n";
  std::vector<float> values;
  for (const auto* g : of) {
    if (g->sample != nullptr) {
      values.insert(values.end(), g->sample->floats.begin(), g->sample->floats.end());
    }
  }
  std::sort(values.begin(), values.end());
  std::vector<double> cuts;
  constexpr std::size_t kCuts = 15;
  for (std::size_t k = 1; k <= kCuts && !values.empty(); ++k) {
    const auto cut = static_cast<double>(values[values.size() * k / (kCuts + 1)]);
    if (cuts.empty() || cuts.back() < cut) cuts.push_back(cut);
  }
  if (cuts.empty()) cuts = {0.0};
  return fmt::format("kind = \"bucket\"\nboundaries = {}  # sixteenths of a sample\n",
                     list_text(cuts, number_text));
}

// The lines that say what the values are, for a feature read from these columns.
std::string Writer::kind(const std::vector<const Guess*>& of) const {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::uint64_t bits = 0;
  std::unordered_set<std::int64_t> distinct;
  for (const auto* g : of) {
    const auto [l, h] = range_of(*g);
    low = std::min(low, l), high = std::max(high, h);
    if (g->sample == nullptr) continue;
    bits |= g->sample->bits;
    distinct.insert(g->sample->distinct.begin(), g->sample->distinct.end());
  }
  const Guess& g = *of.front();
  const Element element = element_of(*g.column);
  if (element == Element::kFloat) return number_kind(of, low, high);
  const bool twin = actions_ != nullptr && g.stem == actions_->stem;
  if (element == Element::kMask || is_mask(g.stem) || twin) {
    const int seen = static_cast<int>(std::bit_width(bits));
    return fmt::format("kind = \"multi_hot\"\nsize = {}{}\n", seen > 0 ? seen : 8,
                       seen > 0 ? "" : "  # no bit was seen");
  }
  if (is_time(g.stem)) return bucket_of_time(g);
  const bool named_id = lower(g.stem).ends_with("id");
  if (!named_id && low >= 0 && high < static_cast<double>(kMostCategories)) {
    return fmt::format("kind = \"category\"\nrows = {}\n", static_cast<std::int64_t>(high) + 1);
  }
  const std::size_t seen = distinct.size();
  const std::size_t rows = sample_ == nullptr
                               ? 100'000
                               : std::bit_ceil(std::clamp<std::size_t>(2 * seen, 512, 1'000'000));
  return fmt::format("kind = \"id\"\nrows = {}{}\nhashes = 2\n", rows,
                     sample_ == nullptr
                         ? ""
                         : fmt::format("  # {} distinct values in {} rows", seen, sample_->rows));
}

void Writer::feature(const char* scope, const std::string& columns,
                     const std::vector<const Guess*>& of) {
  features_ +=
      fmt::format("\n[[features]]\nname = {}\nscope = \"{}\"\n{}{}",
                  string_text(unique(of.front()->stem, feature_names_)), scope, kind(of), columns);
}

void Writer::target(const Guess& g) {
  targets_ += fmt::format("\n[[targets]]\nname = {}\ncandidate_column = {}\n",
                          string_text(unique(g.stem, answer_names_)), string_text(g.column->name));
}

// What history_X and candidate_X become.
void Writer::side(const Side& s) {
  const auto line = [](const char* key, const Guess& g) {
    return fmt::format("{} = {}\n", key, string_text(g.column->name));
  };
  const Guess* h = s.history;
  const Guess* c = s.candidate;
  if (c != nullptr && c == actions_) c = nullptr;
  if (c != nullptr && is_answer(c->stem) && element_of(*c->column) != Element::kMask) {
    target(*c);
    c = nullptr;
  } else if (c != nullptr && actions_ == nullptr && may_be_label(*c)) {
    suspects_.push_back(c);
    c = nullptr;
  } else if (c != nullptr && (is_mask(c->stem) || label_rank(c->stem) >= 0)) {
    note(c->column->name, "looks like an answer of another kind; not known before the request");
    c = nullptr;
  }
  const bool same =
      h != nullptr && c != nullptr && element_of(*h->column) == element_of(*c->column);
  if (same) {
    feature("event", line("history_column", *h) + line("candidate_column", *c), {h, c});
    return;
  }
  if (h != nullptr) feature("history", line("history_column", *h), {h});
  if (c != nullptr) feature("candidate", line("candidate_column", *c), {c});
}

void Writer::scalar(const Guess& g) {
  if (&g == time_) return;
  if (&g != user_ && g.sample != nullptr && g.sample->count >= kEveryRow &&
      g.sample->distinct.size() == static_cast<std::size_t>(g.sample->count)) {
    return note(g.column->name, "another value in every row");
  }
  feature("user", fmt::format("column = {}\n", string_text(g.column->name)), {&g});
}

const char* Writer::name_of_bit(int bit) const {
  for (const auto& action : synth::kActionInfos) {
    if (synthetic_ && action.bit == bit) return action.name;
  }
  return nullptr;
}

// One action for every bit seen.
void Writer::actions(const Guess* column) {
  std::uint64_t bits = column != nullptr && column->sample != nullptr ? column->sample->bits : 0;
  const bool seen = bits != 0;
  if (!seen) bits = 0xFF;
  for (int b = 0; b < 64; ++b) {
    if ((bits >> b & 1) == 0) continue;
    std::string rest;
    if (seen) {
      const auto& sample = *column->sample;
      const std::int64_t n = sample.bit_counts[static_cast<std::size_t>(b)];
      const double rate = 100.0 * static_cast<double>(n) / static_cast<double>(sample.count);
      rest = n == sample.count
                 ? "train = false  # set on every candidate of the sample\n"
                 : fmt::format("score = 1.0\n# taken on {:.2f} % of the sample\n", rate);
    }
    const char* known = name_of_bit(b);
    const std::string name = known != nullptr ? known : fmt::format("action_{}", b);
    actions_text_ += fmt::format("\n[[actions]]\nname = {}\nbit = {}\n{}",
                                 string_text(unique(name, answer_names_)), b, rest);
  }
}

Error Writer::missing(const char* what) const {
  std::string columns;
  for (std::size_t c = 0; c < file_.columns.size() && c < 20; ++c) {
    columns +=
        fmt::format("{}{} {}", c > 0 ? ", " : "", file_.columns[c].name, file_.columns[c].type);
  }
  const char* more = file_.columns.size() > 20 ? ", ..." : "";
  return Error(Code::kNotFound, fmt::format("found {}; the columns are: {}{}", what,
                                            columns.empty() ? "none" : columns, more));
}

// The likeliest column of labels; more of them become notes.
void Writer::find_actions() {
  const auto likelier = [](const Guess& a, const Guess& b) {
    // Masks before other names of the same word.
    return std::pair(label_rank(a.stem), !is_mask(a.stem)) <
           std::pair(label_rank(b.stem), !is_mask(b.stem));
  };
  for (const auto& g : guesses_) {
    if (g.shape != Shape::kCandidateList || label_rank(g.stem) < 0) continue;
    if (element_of(*g.column) == Element::kFloat) continue;
    if (actions_ == nullptr || likelier(g, *actions_)) actions_ = &g;
  }
  synthetic_ =
      std::all_of(synth::kActionInfos.begin(), synth::kActionInfos.end(), [&](const auto& action) {
        return file_.find(fmt::format("oracle_probability.{}", action.name)) != nullptr;
      });
}

void Writer::find_columns() {
  for (const auto& g : guesses_) {
    if (g.shape == Shape::kScalar) scalar(g);
    if (g.shape == Shape::kHistoryList) side({&g, find(Shape::kCandidateList, g.stem)});
    if (g.shape == Shape::kCandidateList && find(Shape::kHistoryList, g.stem) == nullptr) {
      side({nullptr, &g});
    }
  }
  for (const auto* suspect : suspects_) {
    note(suspect->column->name,
         "may be the label: set data.actions_column to it, or use it as a feature");
  }
}

Result<void> Writer::choose() {
  const auto is_int = [](const Guess& g) { return g.column->form == Form::kInteger; };
  const auto pick = [&](auto&& wanted) -> const Guess* {
    for (const auto& g : guesses_) {
      if (g.shape == Shape::kScalar && is_int(g) && wanted(lower(g.column->name))) return &g;
    }
    return nullptr;
  };
  user_ = pick([](const auto& n) { return n == "user_id"; });
  if (user_ == nullptr) user_ = pick([](const auto& n) { return has_any(n, {"user", "uid"}); });
  if (user_ == nullptr) user_ = pick([](const auto& n) { return n.ends_with("id"); });
  time_ = pick([](const auto& n) { return n == "request_time"; });
  if (time_ == nullptr) time_ = pick([](const auto& n) { return is_time(n); });
  if (time_ != nullptr) {
    const double latest = range_of(*time_).second;
    for (const double unit : {1e9, 1e6, 1e3}) {
      // Seconds stay below 1e10 until the year 2286.
      if (second_ == 1.0 && std::isfinite(latest) && latest > 1e8 * unit) second_ = unit;
    }
  }
  find_actions();
  if (user_ == nullptr) {
    return missing("no integer column of users, such as user_id");
  }
  find_columns();
  if (features_.find("candidate_column") == std::string::npos) {
    return missing("no list column that describes candidates, such as candidate_item_id");
  }
  if (actions_ != nullptr || targets_.empty()) actions(actions_);
  for (const auto& column : file_.columns) {
    if (column.form == Form::kOther) note(column.name, column.why_not);
  }
  return {};
}

std::string Writer::text() const {
  std::string text;
  if (user_->column->name != "user_id") {
    text += fmt::format("user_column = {}\n", string_text(user_->column->name));
  }
  if (time_ != nullptr && time_->column->name != "request_time") {
    text += fmt::format("time_column = {}\n", string_text(time_->column->name));
  }
  if (!has_labels()) {
    text += "# No column of actions was found: training needs one, ranking does not.\n";
    text += "actions_column = \"candidate_actions\"\n";
  } else if (actions_ != nullptr && actions_->column->name != "candidate_actions") {
    text += fmt::format("actions_column = {}\n", string_text(actions_->column->name));
  }
  text += "\n[batch]\n";
  if (sample_ != nullptr) {
    text += fmt::format("# Longest of {} rows: {} events, {} candidates.\n", sample_->rows,
                        sample_->longest_history, sample_->longest_candidates);
    text += fmt::format("history_len = {}\ncandidates = {}\n",
                        std::clamp<std::int64_t>(sample_->longest_history, 1, 1024),
                        std::clamp<std::int64_t>(sample_->longest_candidates, 1, 512));
  }
  text += "\n# A column that is known only after the request must not be a feature.\n";
  text += features_ + actions_text_ + targets_;
  if (!notes_.empty()) text += "\n# Columns that are not used:\n" + notes_;
  return text;
}

// The first file that can be opened and has rows, or else the first that can be opened.
Result<std::pair<DatasetFile, FileColumns>> first_whole(const std::vector<DatasetFile>& files) {
  constexpr std::size_t kMostTries = 1000;
  std::optional<std::pair<DatasetFile, FileColumns>> empty;
  std::optional<Error> broken;
  for (std::size_t f = 0; f < files.size() && f < kMostTries; ++f) {
    auto columns = file_columns(files[f]);
    if (!columns) {
      if (!broken) broken = columns.error();
      continue;
    }
    if (columns->rows > 0) return std::pair(files[f], std::move(*columns));
    if (!empty) empty.emplace(files[f], std::move(*columns));
  }
  if (empty) return std::move(*empty);
  return *broken;
}

}  // namespace

Result<SuggestedConfig> suggest(const std::vector<std::string>& paths) {
  const Splits splits = find_splits(paths);
  PL_TRY(const auto found, find_files(splits.train));
  PL_TRY(const auto first, first_whole(found));
  const auto& [from, file] = first;
  std::string notes;
  auto guesses = guesses_of(file, notes);
  std::vector<features::Column> wanted;
  for (const auto& g : guesses) {
    wanted.push_back({g.column->name, g.shape, element_of(*g.column)});
  }
  auto sample = sample_columns(from, wanted);
  if (sample) {
    for (auto& g : guesses) g.sample = &sample->columns.at(g.column->name);
  } else {
    notes += fmt::format("# Guessed without looking at rows: {}\n",
                         string_text(sample.error().message()));
  }
  Writer writer(file, sample ? &*sample : nullptr, std::move(guesses));
  PL_TRY_VOID(writer.choose().context("looking at the columns of " + from.path));
  std::string text = fmt::format("# Suggested from the columns of {}: read it before use.\n",
                                 string_text(from.path));
  text += "[run]\ndir = \"run\"\n\n[data]\n" + splits.lines + writer.text();
  text += notes.empty() ? "" : "\n# Other columns:\n" + notes;
  return SuggestedConfig{std::move(text), writer.has_labels()};
}

Result<std::string> suggest_config(const std::vector<std::string>& paths) {
  PL_TRY(auto suggested, suggest(paths));
  return std::move(suggested.toml);
}

}  // namespace paceline::data
