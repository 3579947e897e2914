// The packed batch and how rows become examples of it.
//
// For each example [prefix | history | candidates]; all examples concatenated. Feature arrays are
// struct-of-arrays in one allocation (one host-to-device copy), every array 256-byte aligned.
//
// Each token kind has its own dense index space: prefix kind p has one entry per example; history
// entries of all examples are concatenated (cu_history), candidates likewise (cu_candidates). The
// token index of an entry in the concatenation of examples follows from cu_tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"
#include "features/schema.hpp"

namespace paceline::features {

// Limits of a batch and of an example in it (config section [batch]).
struct BatchLimits {
  std::int32_t examples = 64;
  std::int32_t tokens = 0;        // 0: examples x (prefix + history_len + candidates)
  std::int32_t history_len = 64;  // newest kept
  std::int32_t candidates = 8;    // first kept

  // Fills in `tokens` when it is 0. Keys: batch.examples, .tokens, .history_len, .candidates.
  static Result<BatchLimits> from_config(Config& config, const Schema& schema);
};

// Decoded values of one block of rows: what a source's read() fills and the cutter reads.
// Lists of the history columns share history_offsets, lists of candidate columns candidate_offsets.
struct ColumnValues {
  std::vector<std::int64_t> ints;  // Element::kInt64, and kMask as bits
  std::vector<float> floats;       // Element::kFloat
};
struct BadRow {
  std::int64_t row = 0;  // within the block
  std::string why;       // names file, row group, column and row
};
struct RowBlock {
  std::int64_t rows = 0;
  std::int64_t first_row = 0;                   // row number within the dataset
  std::vector<std::int64_t> history_offsets;    // [rows + 1]
  std::vector<std::int64_t> candidate_offsets;  // [rows + 1]
  std::vector<ColumnValues> columns;            // parallel to Schema::columns()
  // Rows that cannot be used, ascending, one entry each. Their offsets are in order and their
  // values in bounds, but mean nothing: they are not to be cut into a batch.
  std::vector<BadRow> bad_rows;
};

// What cutting changed, counted since the batch was begun; the pipeline sums and prints it.
struct CutCounts {
  std::int64_t history_events_cut = 0;      // older than the newest history_len
  std::int64_t candidates_cut = 0;          // beyond the first `candidates`
  std::int64_t unknown_actions = 0;         // candidates with action bits that no action declares
  std::int64_t unknown_categories = 0;      // category values outside [0, rows)
  std::int64_t request_before_history = 0;  // rows whose newest kept event is after the request

  CutCounts& operator+=(const CutCounts& other);
  friend bool operator==(const CutCounts&, const CutCounts&) = default;
};

// "12 history events beyond batch.history_len left out; ..."; empty when nothing was.
std::string cuts_text(const CutCounts& cuts);

// Where each array lies in a batch's buffer. A pure function of schema and limits.
class BatchLayout {
 public:
  BatchLayout(const Schema& schema, const BatchLimits& limits);

  struct Array {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  struct FeatureArray {
    Array array;  // kId int32[n][hashes]; kCategory, kBucket int32[n]; kNumber float[n]; kMultiHot
                  // uint64[n]
    Kind kind = Kind::kId;
    int width = 1;  // hashes for kId, else 1
  };

  std::size_t total_bytes() const { return total_bytes_; }
  const BatchLimits& limits() const { return limits_; }
  int prefix_tokens() const { return prefix_tokens_; }
  // Feature arrays of token kind k, parallel to Schema::kinds()[k].features.
  const std::vector<FeatureArray>& features(int kind) const {
    return features_[static_cast<std::size_t>(kind)];
  }

  Array cu_tokens, cu_history, cu_candidates;  // int32[examples + 1]
  Array history_len, candidate_len;            // int32[examples]
  Array positions;  // int32[tokens]: history i -> prefix + i, candidates -> prefix + history_len
  Array actions;    // uint64[candidates]
  std::vector<Array> targets;  // float[candidates] each
  Array user_id, dataset_row;  // int64[examples]

 private:
  BatchLimits limits_;
  int prefix_tokens_ = 0;
  std::size_t total_bytes_ = 0;
  std::vector<std::vector<FeatureArray>> features_;
};

// One batch in one buffer. The layout and the schema must outlive it.
class Batch {
 public:
  explicit Batch(const BatchLayout& layout);

  const BatchLayout& layout() const { return *layout_; }
  std::int32_t examples() const { return examples_; }
  std::int32_t tokens() const { return tokens_; }
  std::int32_t history_tokens() const { return history_tokens_; }
  std::int32_t candidate_tokens() const { return candidate_tokens_; }
  // Entries of token kind k: examples for a prefix kind, else history or candidate tokens.
  std::int32_t entries(int kind) const;

  std::span<const std::int32_t> cu_tokens() const;
  std::span<const std::int32_t> cu_history() const;
  std::span<const std::int32_t> cu_candidates() const;
  std::span<const std::int32_t> history_len() const;
  std::span<const std::int32_t> candidate_len() const;
  std::span<const std::int32_t> positions() const;
  std::span<const std::uint64_t> actions() const;
  std::span<const float> target(int index) const;
  std::span<const std::int64_t> user_id() const;
  std::span<const std::int64_t> dataset_row() const;

  // Values of feature f of kind k, for all entries.
  std::span<const std::int32_t> feature_int(int kind, int feature) const;
  std::span<const float> feature_float(int kind, int feature) const;
  std::span<const std::uint64_t> feature_mask(int kind, int feature) const;

  const CutCounts& cuts() const { return cuts_; }
  const std::byte* data() const { return buffer_.data(); }

 private:
  friend class BatchCutter;
  friend void keep_examples(Batch& batch, std::int32_t first, std::int32_t last);
  template <typename T>
  T* at(const BatchLayout::Array& array) {
    return reinterpret_cast<T*>(buffer_.data() + array.offset);
  }
  template <typename T>
  std::span<const T> view(const BatchLayout::Array& array, std::int64_t count) const {
    return {reinterpret_cast<const T*>(buffer_.data() + array.offset),
            static_cast<std::size_t>(count)};
  }

  const BatchLayout* layout_;
  HostBuffer buffer_;
  std::int32_t examples_ = 0, tokens_ = 0, history_tokens_ = 0, candidate_tokens_ = 0;
  CutCounts cuts_;
};

// Leaves examples [first, last) in the batch, as if no other had been cut into it; its counts of
// what was cut stay those of the whole batch.
void keep_examples(Batch& batch, std::int32_t first, std::int32_t last);

// Writes rows into a batch one after the other. No allocation after construction.
class BatchCutter {
 public:
  BatchCutter(const Schema& schema, const BatchLayout& layout);

  void begin(Batch& batch);
  // False when the row does not fit any more: the batch is complete without it. Into an empty
  // batch every row fits that `tokens_of` allows.
  bool append(const RowBlock& block, std::int64_t row);

  // Tokens that this row takes after both cuts.
  std::int64_t tokens_of(const RowBlock& block, std::int64_t row) const;

 private:
  // Entries [begin, begin + count) of the block's lists (or the row itself) become entries from
  // `first` on of a token kind.
  struct Slice {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t row = 0;
    std::int64_t first = 0;
  };
  void write_feature(const TokenFeature& feature, const BatchLayout::FeatureArray& to,
                     const RowBlock& block, const Slice& slice);
  void write_kind(int kind, const RowBlock& block, const Slice& slice);
  void write_labels(const RowBlock& block, const Slice& slice);

  const Schema* schema_;
  const BatchLayout* layout_;
  Batch* batch_ = nullptr;
  int event_time_column_ = kNoColumn;  // history column that is compared with the request's time
};

}  // namespace paceline::features
