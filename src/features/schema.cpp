#include "features/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace paceline::features {
namespace {

constexpr std::int64_t kMaxCategories = 1024;
constexpr std::int64_t kMaxBuckets = 1024;
constexpr std::int64_t kMaxHashes = 8;
constexpr int kMaskBits = 64;
constexpr std::int64_t kMaxTableRows = std::numeric_limits<std::int32_t>::max();

// What one [[features]] entry says, before it is laid out on token kinds.
struct Declared {
  TokenFeature feature;  // columns not set yet
  Scope scope = Scope::kUser;
  std::string token;  // kUser only
  std::string column, history_column, candidate_column, minus;
  std::optional<bool> minus_is_list;
};

std::string key_of(const char* section, std::size_t i, const char* key) {
  return fmt::format("{}[{}].{}", section, i, key);
}

std::string in_quotes(const std::string& text) { return fmt::format("\"{}\"", text); }

// Names become columns of outputs and keys of metrics.
bool usable_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

Result<std::string> read_name(Config& config, const char* section, std::size_t i) {
  const std::string key = key_of(section, i, "name");
  PL_TRY(auto name, config.get_string(key));
  if (!usable_name(name)) {
    return config.invalid(key, in_quotes(name), "a name of letters, digits, '_', '-' and '.'");
  }
  return name;
}

Result<std::string> read_column(Config& config, const std::string& key) {
  PL_TRY(auto name, config.get_string(key));
  if (name.empty()) return config.invalid(key, "\"\"", "the name of a column");
  return name;
}

Result<void> read_boundaries(Config& config, std::size_t i, TokenFeature& f) {
  const std::string key = key_of("features", i, "boundaries");
  const std::string buckets_key = key_of("features", i, "buckets");
  if (config.is_string(key) || !config.has(key)) {
    PL_TRY(const auto text, config.get_string(key, "log2"));
    if (text != "log2")
      return config.invalid(key, in_quotes(text), "\"log2\" or a list of numbers");
    f.log2_boundaries = true;
    PL_TRY(const auto buckets, config.get_int(buckets_key, 32, {.min = 2, .max = kMaxBuckets}));
    PL_TRY(f.unit, config.get_number(key_of("features", i, "unit"), 1.0));
    if (!(f.unit > 0) || !std::isfinite(f.unit)) {
      return config.invalid(key_of("features", i, "unit"), fmt::format("{}", f.unit),
                            "a finite number > 0");
    }
    f.size = static_cast<int>(buckets);
    return {};
  }
  PL_TRY(f.boundaries, config.get_numbers(key));
  const auto& b = f.boundaries;
  bool increasing = !b.empty();
  for (std::size_t k = 0; k < b.size(); ++k) {
    increasing = increasing && std::isfinite(b[k]) && (k == 0 || b[k - 1] < b[k]);
  }
  if (!increasing || b.size() >= static_cast<std::size_t>(kMaxBuckets)) {
    return config.invalid(
        key, fmt::format("a list of {} numbers", b.size()),
        fmt::format("1 to {} finite numbers, strictly increasing", kMaxBuckets - 1));
  }
  f.size = static_cast<int>(b.size()) + 1;
  if (config.has(buckets_key)) {
    PL_TRY(const auto buckets, config.get_int(buckets_key));
    if (buckets != f.size) {
      return config.invalid(buckets_key, std::to_string(buckets),
                            fmt::format("{}: the list of boundaries makes that many", f.size));
    }
  }
  return {};
}

Result<void> read_kind(Config& config, std::size_t i, Declared& d) {
  const std::string kind_key = key_of("features", i, "kind");
  PL_TRY(const auto kind,
         config.get_choice(kind_key, {"id", "category", "bucket", "number", "multi_hot"}));
  const std::string rows_key = key_of("features", i, "rows");
  auto& f = d.feature;
  f.size = 1;
  if (kind == "id") {
    f.kind = Kind::kId;
    PL_TRY(f.rows, config.get_int(rows_key, {}, {.min = 1, .max = kMaxTableRows}));
    PL_TRY(const auto hashes,
           config.get_int(key_of("features", i, "hashes"), 2, {.min = 1, .max = kMaxHashes}));
    f.hashes = static_cast<int>(hashes);
  } else if (kind == "category") {
    f.kind = Kind::kCategory;
    PL_TRY(const auto rows, config.get_int(rows_key, {}, {.min = 1}));
    if (rows > kMaxCategories) {
      return config.invalid(
          rows_key, std::to_string(rows),
          fmt::format("1 to {} rows of a category; use kind = \"id\" for more values",
                      kMaxCategories));
    }
    f.size = static_cast<int>(rows);
  } else if (kind == "bucket") {
    f.kind = Kind::kBucket;
    PL_TRY(d.minus, config.get_string(key_of("features", i, "minus"), ""));
    const std::string list_key = key_of("features", i, "minus_is_list");
    if (config.has(list_key)) {
      PL_TRY(const bool is_list, config.get_bool(list_key));
      d.minus_is_list = is_list;
    }
    PL_TRY_VOID(read_boundaries(config, i, f));
  } else if (kind == "number") {
    f.kind = Kind::kNumber;
  } else {
    f.kind = Kind::kMultiHot;
    PL_TRY(const auto size,
           config.get_int(key_of("features", i, "size"), {}, {.min = 1, .max = kMaskBits}));
    f.size = static_cast<int>(size);
  }
  return {};
}

Result<void> read_columns(Config& config, std::size_t i, Declared& d) {
  const auto read = [&](const char* key, std::string& out) -> Result<void> {
    PL_TRY(out, read_column(config, key_of("features", i, key)));
    return {};
  };
  // A scope of one list may call its column `column` or by the list's name.
  const auto either = [&](const char* key, std::string& out) -> Result<void> {
    const std::string plain = key_of("features", i, "column");
    if (!config.has(plain)) return read(key, out);
    if (config.has(key_of("features", i, key))) {
      return config.invalid(plain, "a column", fmt::format("either column or {}, not both", key));
    }
    return read("column", out);
  };
  switch (d.scope) {
    case Scope::kUser: {
      const std::string key = key_of("features", i, "token");
      PL_TRY(d.token, config.get_string(key, "user"));
      if (!usable_name(d.token) || d.token == "history" || d.token == "candidate") {
        return config.invalid(key, in_quotes(d.token),
                              "a name other than \"history\" and \"candidate\"");
      }
      return read("column", d.column);
    }
    case Scope::kHistory:
      return either("history_column", d.history_column);
    case Scope::kCandidate:
      return either("candidate_column", d.candidate_column);
    case Scope::kEvent:
      PL_TRY_VOID(read("history_column", d.history_column));
      return read("candidate_column", d.candidate_column);
  }
  return {};
}

Result<Declared> read_feature(Config& config, std::size_t i) {
  Declared d;
  PL_TRY(d.feature.name, read_name(config, "features", i));
  PL_TRY(const auto scope, config.get_choice(key_of("features", i, "scope"),
                                             {"user", "event", "history", "candidate"}));
  d.scope = scope == "user"      ? Scope::kUser
            : scope == "event"   ? Scope::kEvent
            : scope == "history" ? Scope::kHistory
                                 : Scope::kCandidate;
  PL_TRY_VOID(read_kind(config, i, d));
  PL_TRY_VOID(read_columns(config, i, d));
  return d;
}

Element element_of(const TokenFeature& f, bool difference) {
  switch (f.kind) {
    case Kind::kId:
    case Kind::kCategory:
      return Element::kInt64;
    case Kind::kBucket:
      // Times in seconds do not fit a float: differences are taken of integers.
      return difference ? Element::kInt64 : Element::kFloat;
    case Kind::kNumber:
      return Element::kFloat;
    case Kind::kMultiHot:
      return Element::kMask;
  }
  return Element::kInt64;
}

// The columns read so far; one entry for each (name, shape, element).
class ColumnSet {
 public:
  explicit ColumnSet(std::vector<Column>& columns) : columns_(columns) {}

  // The column's index, or the shape that the name already has.
  Result<int> add(const Config& config, const std::string& key, const std::string& name,
                  Shape shape, Element element) {
    const Column wanted{name, shape, element};
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c] == wanted) return static_cast<int>(c);
      if (columns_[c].name == name && columns_[c].shape != shape) {
        return config.invalid(key, in_quotes(name),
                              "a column that is used either for the row, for its history or for "
                              "its candidates");
      }
    }
    columns_.push_back(wanted);
    return static_cast<int>(columns_.size() - 1);
  }

  std::string name(int column) const {
    return column == kNoColumn ? "" : columns_[static_cast<std::size_t>(column)].name;
  }

 private:
  std::vector<Column>& columns_;
};

struct Kinds {
  std::vector<TokenKind> prefix;
  TokenKind history{"history", {}};
  TokenKind candidate{"candidate", {}};

  TokenKind& prefix_of(const std::string& token) {
    for (auto& k : prefix) {
      if (k.name == token) return k;
    }
    prefix.push_back({token, {}});
    return prefix.back();
  }
};

// Names that are lists in this config: a `minus` column among them is a list, any other one a
// scalar, unless minus_is_list says so.
std::vector<std::string> list_names(const std::vector<Declared>& declared, bool history) {
  std::vector<std::string> names;
  for (const auto& d : declared) {
    const auto& name = history ? d.history_column : d.candidate_column;
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<void> place(const Config& config, std::size_t i, const Declared& d,
                   const std::vector<Declared>& all, const std::string& actions, ColumnSet& columns,
                   Kinds& kinds) {
  const auto add = [&](TokenKind& kind, const char* key, const std::string& name,
                       Shape shape) -> Result<void> {
    const std::string full_key = key_of("features", i, key);
    for (const auto& other : kind.features) {
      if (other.name == d.feature.name) {
        return config.invalid(key_of("features", i, "name"), in_quotes(d.feature.name),
                              "a name that no other feature of the same token has");
      }
    }
    if (shape == Shape::kCandidateList && name == actions) {
      return config.invalid(full_key, in_quotes(name),
                            "a column that is known before the answer; this one holds the "
                            "actions to predict (data.actions_column)");
    }
    TokenFeature f = d.feature;
    PL_TRY(f.column, columns.add(config, full_key, name, shape, element_of(f, !d.minus.empty())));
    if (!d.minus.empty()) {
      const bool declared = contains(list_names(all, shape == Shape::kHistoryList), d.minus);
      const bool list = shape != Shape::kScalar && d.minus_is_list.value_or(declared);
      PL_TRY(f.minus_column, columns.add(config, key_of("features", i, "minus"), d.minus,
                                         list ? shape : Shape::kScalar, Element::kInt64));
    }
    kind.features.push_back(std::move(f));
    return {};
  };
  switch (d.scope) {
    case Scope::kUser:
      return add(kinds.prefix_of(d.token), "column", d.column, Shape::kScalar);
    case Scope::kHistory:
      return add(kinds.history, "history_column", d.history_column, Shape::kHistoryList);
    case Scope::kCandidate:
      return add(kinds.candidate, "candidate_column", d.candidate_column, Shape::kCandidateList);
    case Scope::kEvent:
      PL_TRY_VOID(add(kinds.history, "history_column", d.history_column, Shape::kHistoryList));
      return add(kinds.candidate, "candidate_column", d.candidate_column, Shape::kCandidateList);
  }
  return {};
}

Result<std::vector<Action>> read_actions(Config& config) {
  PL_TRY(const auto count, config.table_count("actions"));
  std::vector<Action> actions;
  for (std::size_t i = 0; i < count; ++i) {
    Action a;
    PL_TRY(a.name, read_name(config, "actions", i));
    PL_TRY(const auto bit,
           config.get_int(key_of("actions", i, "bit"), {}, {.min = 0, .max = kMaskBits - 1}));
    PL_TRY(a.train, config.get_bool(key_of("actions", i, "train"), true));
    PL_TRY(a.weight,
           config.get_number(key_of("actions", i, "weight"), 1.0, {.min = 0.0, .max = 1e6}));
    PL_TRY(a.score,
           config.get_number(key_of("actions", i, "score"), 0.0, {.min = -1e6, .max = 1e6}));
    a.bit = static_cast<int>(bit);
    for (const auto& other : actions) {
      if (other.name == a.name) {
        return config.invalid(key_of("actions", i, "name"), in_quotes(a.name),
                              "a name that no other action has");
      }
      if (other.bit == a.bit) {
        return config.invalid(
            key_of("actions", i, "bit"), std::to_string(a.bit),
            fmt::format("a bit that no other action has ({} has it)", other.name));
      }
    }
    actions.push_back(std::move(a));
  }
  return actions;
}

Result<std::vector<Target>> read_targets(Config& config, ColumnSet& columns,
                                         const std::vector<Action>& actions,
                                         const TokenKind& candidate) {
  PL_TRY(const auto count, config.table_count("targets"));
  std::vector<Target> targets;
  for (std::size_t i = 0; i < count; ++i) {
    Target t;
    PL_TRY(t.name, read_name(config, "targets", i));
    const std::string key = key_of("targets", i, "candidate_column");
    PL_TRY(const auto column, read_column(config, key));
    PL_TRY(const auto loss, config.get_choice(key_of("targets", i, "loss"),
                                              {"sigmoid_mae", "tweedie"}, "sigmoid_mae"));
    t.loss = loss == "tweedie" ? TargetLoss::kTweedie : TargetLoss::kSigmoidMae;
    PL_TRY(t.cap, config.get_number(key_of("targets", i, "cap"),
                                    t.loss == TargetLoss::kTweedie ? 300.0 : 30.0,
                                    {.min = 1e-6, .max = 1e9}));
    PL_TRY(t.weight,
           config.get_number(key_of("targets", i, "weight"), 0.1, {.min = 0.0, .max = 1e6}));
    const auto taken = [&](const auto& other) { return other.name == t.name; };
    if (std::any_of(targets.begin(), targets.end(), taken) ||
        std::any_of(actions.begin(), actions.end(), taken)) {
      return config.invalid(key_of("targets", i, "name"), in_quotes(t.name),
                            "a name that no other target or action has");
    }
    for (const auto& feature : candidate.features) {
      if (columns.name(feature.column) == column || columns.name(feature.minus_column) == column) {
        return config.invalid(
            key, in_quotes(column),
            fmt::format("a column that no feature reads; feature {} does, and would "
                        "know the answer",
                        feature.name));
      }
    }
    PL_TRY(t.column, columns.add(config, key, column, Shape::kCandidateList, Element::kFloat));
    targets.push_back(std::move(t));
  }
  return targets;
}

// Event features share the rows of both their halves.
Result<std::int64_t> lay_out_table(const Config& config, std::vector<Declared>& declared) {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    auto& f = declared[i].feature;
    if (f.kind != Kind::kId) continue;
    f.table_base = rows;
    rows += f.rows;
    if (rows > kMaxTableRows) {
      return config.invalid(
          key_of("features", i, "rows"), std::to_string(f.rows),
          fmt::format("at most {} rows in all id features together", kMaxTableRows));
    }
  }
  return rows;
}

}  // namespace

Result<Schema> Schema::from_config(Config& config) {
  Schema s;
  ColumnSet columns(s.columns_);
  PL_TRY(const auto user, config.get_string("data.user_column", "user_id"));
  PL_TRY(const auto time, config.get_string("data.time_column", "request_time"));
  PL_TRY(const auto actions, config.get_string("data.actions_column", "candidate_actions"));
  if (user.empty()) {
    return config.invalid("data.user_column", "\"\"", "the name of a column");
  }
  PL_TRY(s.user_column_,
         columns.add(config, "data.user_column", user, Shape::kScalar, Element::kInt64));

  PL_TRY(const auto count, config.table_count("features"));
  if (count == 0) return config.invalid("features", "none", "at least one [[features]]");
  std::vector<Declared> declared;
  for (std::size_t i = 0; i < count; ++i) {
    PL_TRY(auto d, read_feature(config, i));
    declared.push_back(std::move(d));
  }
  PL_TRY(s.table_rows_, lay_out_table(config, declared));

  Kinds kinds;
  for (std::size_t i = 0; i < count; ++i) {
    PL_TRY_VOID(place(config, i, declared[i], declared, actions, columns, kinds));
  }
  if (kinds.candidate.features.empty()) {
    return config.invalid("features", "none of scope event or candidate",
                          "at least one that describes a candidate");
  }

  PL_TRY(s.actions_, read_actions(config));
  if (!s.actions_.empty()) {
    if (actions.empty()) {
      return config.invalid("data.actions_column", "\"\"",
                            "the name of a column, as there are [[actions]]");
    }
    PL_TRY(s.actions_column_, columns.add(config, "data.actions_column", actions,
                                          Shape::kCandidateList, Element::kMask));
  }
  for (const auto& a : s.actions_) s.action_mask_ |= std::uint64_t{1} << a.bit;
  PL_TRY(s.targets_, read_targets(config, columns, s.actions_, kinds.candidate));
  if (s.actions_.empty() && s.targets_.empty()) {
    return config.invalid("actions", "none", "at least one of [[actions]] or [[targets]]");
  }

  // The time of the request is read when a feature uses it.
  for (std::size_t c = 0; c < s.columns_.size(); ++c) {
    if (s.columns_[c] == Column{time, Shape::kScalar, Element::kInt64}) {
      s.time_column_ = static_cast<int>(c);
    }
  }

  s.kinds_ = std::move(kinds.prefix);
  s.kinds_.push_back(std::move(kinds.history));
  s.kinds_.push_back(std::move(kinds.candidate));
  return s;
}

Schema Schema::without_labels() const {
  Schema s = *this;
  int last = std::max(s.user_column_, s.time_column_);
  for (const auto& kind : s.kinds_) {
    for (const auto& f : kind.features) last = std::max({last, f.column, f.minus_column});
  }
  // Columns of labels alone follow those of the features.
  s.columns_.resize(static_cast<std::size_t>(last) + 1);
  s.actions_column_ = kNoColumn;
  for (auto& target : s.targets_) target.column = kNoColumn;
  return s;
}

Schema Schema::with_carried(const std::vector<std::string>& columns) const {
  Schema s = *this;
  for (const auto& name : columns) {
    Target target;
    target.name = name;
    target.column = static_cast<int>(s.columns_.size());
    s.columns_.push_back({name, Shape::kCandidateList, Element::kFloat, true});
    s.targets_.push_back(std::move(target));
  }
  return s;
}

}  // namespace paceline::features
