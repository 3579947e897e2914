// What a row means: the features and actions that a config declares, and the columns they need.
//
// One row is one impression: a user, the history before it (oldest to newest), the candidates
// shown, the actions taken. See docs/data.md for the config's [[features]] and [[actions]].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.hpp"
#include "core/error.hpp"

namespace paceline::features {

// Which tokens a feature belongs to. kEvent is read from a history and a candidate column alike.
enum class Scope : std::uint8_t { kUser, kHistory, kCandidate, kEvent };

enum class Kind : std::uint8_t {
  kId,        // int64, hashed into the shared table; 0 is missing
  kCategory,  // integer in [0, rows); values outside count as row 0 ("other") and are counted
  kBucket,    // a number, or |a - b| of two columns, cut at boundaries
  kNumber,    // a float, used as it is
  kMultiHot,  // a bit mask of `size` bits
};

enum class Shape : std::uint8_t { kScalar, kHistoryList, kCandidateList };
enum class Element : std::uint8_t { kInt64, kFloat, kMask };

// A column that the schema reads, as the user named it. Integers of any width and sign are read as
// int64, float and double as float, masks as uint64.
struct Column {
  std::string name;
  Shape shape = Shape::kScalar;
  Element element = Element::kInt64;
  // Floats only: what cannot be used is read as NaN and makes no row bad.
  bool lenient = false;
  friend bool operator==(const Column&, const Column&) = default;
};

inline constexpr int kNoColumn = -1;

// A feature on one token kind. An event feature becomes two of these which share table rows.
struct TokenFeature {
  std::string name;  // unique within its token kind
  Kind kind = Kind::kId;
  int column = kNoColumn;        // index into Schema::columns()
  int minus_column = kNoColumn;  // bucket of a difference; may be a scalar column
  std::int64_t rows = 0;         // kId: rows of its part of the table
  int hashes = 0;                // kId
  std::int64_t table_base = 0;   // kId: first row of its part
  int size = 0;                  // kCategory rows, kBucket buckets, kMultiHot bits, else 1
  bool log2_boundaries =
      false;          // kBucket: bucket = min(1 + floor(log2(1 + x / unit)), buckets - 1)
  double unit = 1.0;  // kBucket with log2: what x is divided by first
  std::vector<double> boundaries;  // kBucket: bucket = number of boundaries <= x

  // Columns of the token matrix that this feature fills, for a table of width `table_width`.
  int token_width(int table_width) const { return kind == Kind::kId ? hashes * table_width : size; }
};

enum class TargetLoss : std::uint8_t { kSigmoidMae, kTweedie };

struct Action {
  std::string name;
  int bit = 0;
  bool train = true;
  double weight = 1.0;  // in the loss
  double score = 0.0;   // in the weighted ranking score
};

// A regression target on candidates (dwell), e.g. ranker.md A6.
struct Target {
  std::string name;
  int column = kNoColumn;  // kNoColumn without labels
  TargetLoss loss = TargetLoss::kSigmoidMae;
  double cap = 30.0;
  double weight = 0.1;
};

// Token kinds of a batch, in the order of their tokens within an example.
// kinds()[0 .. prefix_tokens()) are prefix tokens (one each per example), then history, candidate.
struct TokenKind {
  std::string name;  // "user", "profile", ..., "history", "candidate"
  std::vector<TokenFeature> features;
  int token_width(int table_width) const {
    int width = 0;
    for (const auto& f : features) width += f.token_width(table_width);
    return width;
  }
};

class Schema {
 public:
  // Reads [[features]], [[actions]], [[targets]] and data column names. Refuses what cannot work
  // (duplicate names, bits beyond 63, no candidate feature, log2 and a list of boundaries, ...).
  static Result<Schema> from_config(Config& config);

  // The same features without the columns of actions and targets: to score rows whose answers are
  // not known. Batches cut with it have no actions and zero targets.
  Schema without_labels() const;

  // The same with more columns of candidates (lists of numbers) carried along: batches cut with it
  // have column i as target(targets().size() of this schema + i). Carried columns are lenient. For
  // evaluations, not for models.
  Schema with_carried(const std::vector<std::string>& columns) const;

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<TokenKind>& kinds() const { return kinds_; }
  const std::vector<Action>& actions() const { return actions_; }
  const std::vector<Target>& targets() const { return targets_; }

  int prefix_tokens() const { return static_cast<int>(kinds_.size()) - 2; }
  int history_kind() const { return prefix_tokens(); }
  int candidate_kind() const { return prefix_tokens() + 1; }

  // Rows of the one shared table (all id features together).
  std::int64_t table_rows() const { return table_rows_; }

  int user_column() const { return user_column_; }        // int64 scalar; metrics per user
  int time_column() const { return time_column_; }        // request_time or kNoColumn
  int actions_column() const { return actions_column_; }  // candidate masks or kNoColumn
  // Bits of candidate masks that no [[actions]] declares are ignored and counted.
  std::uint64_t action_mask() const { return action_mask_; }

 private:
  std::vector<Column> columns_;
  std::vector<TokenKind> kinds_;
  std::vector<Action> actions_;
  std::vector<Target> targets_;
  std::int64_t table_rows_ = 0;
  int user_column_ = kNoColumn;
  int time_column_ = kNoColumn;
  int actions_column_ = kNoColumn;
  std::uint64_t action_mask_ = 0;
};

}  // namespace paceline::features
