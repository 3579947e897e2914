#include "features/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "features/encode.hpp"

namespace paceline::features {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

Result<BatchLimits> BatchLimits::from_config(Config& config, const Schema& schema) {
  const BatchLimits d;
  PL_TRY(const auto examples,
         config.get_int("batch.examples", d.examples, {.min = 1, .max = 1 << 20}));
  PL_TRY(const auto history,
         config.get_int("batch.history_len", d.history_len, {.min = 0, .max = 1 << 20}));
  PL_TRY(const auto candidates,
         config.get_int("batch.candidates", d.candidates, {.min = 1, .max = 1 << 20}));
  PL_TRY(const auto wanted, config.get_int("batch.tokens", 0, {.min = 0, .max = kMaxInt32}));
  const std::int64_t longest = schema.prefix_tokens() + history + candidates;
  const std::int64_t all = examples * longest;
  const std::int64_t tokens = wanted == 0 ? all : std::min(wanted, all);
  if (tokens > kMaxInt32) {
    return config.invalid("batch.examples", std::to_string(examples),
                          fmt::format("at most {}: an example may take {} tokens, and the tokens "
                                      "of a batch are counted in 31 bits (or set batch.tokens)",
                                      kMaxInt32 / longest, longest));
  }
  const std::int64_t shortest = schema.prefix_tokens() + 1;
  if (tokens < shortest) {
    return config.invalid(
        "batch.tokens", std::to_string(wanted),
        fmt::format("0, or at least {} for the shortest example; {} holds every example", shortest,
                    longest));
  }
  BatchLimits limits;
  limits.examples = static_cast<std::int32_t>(examples);
  limits.tokens = static_cast<std::int32_t>(tokens);
  limits.history_len = static_cast<std::int32_t>(history);
  limits.candidates = static_cast<std::int32_t>(candidates);
  return limits;
}

CutCounts& CutCounts::operator+=(const CutCounts& other) {
  history_events_cut += other.history_events_cut;
  candidates_cut += other.candidates_cut;
  unknown_actions += other.unknown_actions;
  unknown_categories += other.unknown_categories;
  request_before_history += other.request_before_history;
  return *this;
}

std::string cuts_text(const CutCounts& cuts) {
  std::string text;
  const auto add = [&](std::int64_t n, const char* what) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", n, what);
  };
  add(cuts.history_events_cut, "history events beyond batch.history_len left out");
  add(cuts.candidates_cut, "candidates beyond batch.candidates left out");
  add(cuts.unknown_actions, "candidates with action bits that no [[actions]] declares");
  add(cuts.unknown_categories, "category values outside their rows, taken as row 0");
  add(cuts.request_before_history, "requests before an event of their history");
  return text;
}

BatchLayout::BatchLayout(const Schema& schema, const BatchLimits& limits)
    : limits_(limits), prefix_tokens_(schema.prefix_tokens()) {
  const std::int64_t b = limits.examples;
  const std::int64_t longest =
      std::int64_t{prefix_tokens_} + limits.history_len + limits.candidates;
  PL_CHECK(b >= 1 && limits.history_len >= 0 && limits.candidates >= 1, "limits of a batch");
  if (limits_.tokens == 0) {
    PL_CHECK(b * longest <= kMaxInt32, "tokens of a batch fit 31 bits");
    limits_.tokens = static_cast<std::int32_t>(b * longest);
  }
  const std::int64_t tokens = limits_.tokens;
  const std::int64_t history = std::min(b * limits.history_len, tokens);
  const std::int64_t candidates = std::min(b * limits.candidates, tokens);

  const auto add = [this](std::int64_t count, std::size_t element) {
    const Array array{total_bytes_, to_size(count) * element};
    total_bytes_ = align_up(total_bytes_ + array.bytes);
    return array;
  };
  cu_tokens = add(b + 1, sizeof(std::int32_t));
  cu_history = add(b + 1, sizeof(std::int32_t));
  cu_candidates = add(b + 1, sizeof(std::int32_t));
  history_len = add(b, sizeof(std::int32_t));
  candidate_len = add(b, sizeof(std::int32_t));
  positions = add(tokens, sizeof(std::int32_t));
  actions = add(candidates, sizeof(std::uint64_t));
  user_id = add(b, sizeof(std::int64_t));
  dataset_row = add(b, sizeof(std::int64_t));

  const auto& kinds = schema.kinds();
  features_.resize(kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const int kind = static_cast<int>(k);
    const std::int64_t entries = kind == schema.history_kind()     ? history
                                 : kind == schema.candidate_kind() ? candidates
                                                                   : b;
    for (const auto& f : kinds[k].features) {
      FeatureArray a;
      a.kind = f.kind;
      a.width = f.kind == Kind::kId ? f.hashes : 1;
      a.array = add(entries * a.width,
                    f.kind == Kind::kMultiHot ? sizeof(std::uint64_t) : sizeof(std::int32_t));
      features_[k].push_back(a);
    }
  }
  // Last: a batch of more targets begins like one of fewer.
  for (std::size_t t = 0; t < schema.targets().size(); ++t) {
    targets.push_back(add(candidates, sizeof(float)));
  }
}

Batch::Batch(const BatchLayout& layout) : layout_(&layout), buffer_(layout.total_bytes()) {}

std::int32_t Batch::entries(int kind) const {
  if (kind < layout_->prefix_tokens()) return examples_;
  return kind == layout_->prefix_tokens() ? history_tokens_ : candidate_tokens_;
}

std::span<const std::int32_t> Batch::cu_tokens() const {
  return view<std::int32_t>(layout_->cu_tokens, examples_ + 1);
}
std::span<const std::int32_t> Batch::cu_history() const {
  return view<std::int32_t>(layout_->cu_history, examples_ + 1);
}
std::span<const std::int32_t> Batch::cu_candidates() const {
  return view<std::int32_t>(layout_->cu_candidates, examples_ + 1);
}
std::span<const std::int32_t> Batch::history_len() const {
  return view<std::int32_t>(layout_->history_len, examples_);
}
std::span<const std::int32_t> Batch::candidate_len() const {
  return view<std::int32_t>(layout_->candidate_len, examples_);
}
std::span<const std::int32_t> Batch::positions() const {
  return view<std::int32_t>(layout_->positions, tokens_);
}
std::span<const std::uint64_t> Batch::actions() const {
  return view<std::uint64_t>(layout_->actions, candidate_tokens_);
}
std::span<const float> Batch::target(int index) const {
  return view<float>(layout_->targets[to_size(index)], candidate_tokens_);
}
std::span<const std::int64_t> Batch::user_id() const {
  return view<std::int64_t>(layout_->user_id, examples_);
}
std::span<const std::int64_t> Batch::dataset_row() const {
  return view<std::int64_t>(layout_->dataset_row, examples_);
}

std::span<const std::int32_t> Batch::feature_int(int kind, int feature) const {
  const auto& f = layout_->features(kind)[to_size(feature)];
  PL_CHECK(f.kind == Kind::kId || f.kind == Kind::kCategory || f.kind == Kind::kBucket,
           "a feature of integers");
  return view<std::int32_t>(f.array, std::int64_t{entries(kind)} * f.width);
}
std::span<const float> Batch::feature_float(int kind, int feature) const {
  const auto& f = layout_->features(kind)[to_size(feature)];
  PL_CHECK(f.kind == Kind::kNumber, "a feature of floats");
  return view<float>(f.array, entries(kind));
}
std::span<const std::uint64_t> Batch::feature_mask(int kind, int feature) const {
  const auto& f = layout_->features(kind)[to_size(feature)];
  PL_CHECK(f.kind == Kind::kMultiHot, "a feature of bit masks");
  return view<std::uint64_t>(f.array, entries(kind));
}

BatchCutter::BatchCutter(const Schema& schema, const BatchLayout& layout)
    : schema_(&schema), layout_(&layout) {
  if (schema.time_column() == kNoColumn) return;
  for (const auto& f : schema.kinds()[to_size(schema.history_kind())].features) {
    if (f.kind == Kind::kBucket && f.minus_column == schema.time_column()) {
      event_time_column_ = f.column;
    }
  }
}

void BatchCutter::begin(Batch& batch) {
  PL_CHECK(&batch.layout() == layout_, "a batch of this cutter's layout");
  batch_ = &batch;
  batch.examples_ = batch.tokens_ = batch.history_tokens_ = batch.candidate_tokens_ = 0;
  batch.cuts_ = {};
  batch.at<std::int32_t>(layout_->cu_tokens)[0] = 0;
  batch.at<std::int32_t>(layout_->cu_history)[0] = 0;
  batch.at<std::int32_t>(layout_->cu_candidates)[0] = 0;
}

std::int64_t BatchCutter::tokens_of(const RowBlock& block, std::int64_t row) const {
  const auto r = to_size(row);
  const auto& limits = layout_->limits();
  const std::int64_t history = block.history_offsets[r + 1] - block.history_offsets[r];
  const std::int64_t candidates = block.candidate_offsets[r + 1] - block.candidate_offsets[r];
  return layout_->prefix_tokens() + std::min<std::int64_t>(history, limits.history_len) +
         std::min<std::int64_t>(candidates, limits.candidates);
}

bool BatchCutter::append(const RowBlock& block, std::int64_t row) {
  Batch& b = *batch_;
  const auto r = to_size(row);
  const auto& limits = layout_->limits();
  const std::int64_t tokens = tokens_of(block, row);
  if (b.examples_ >= limits.examples || b.tokens_ + tokens > limits.tokens) return false;

  const std::int64_t history_all = block.history_offsets[r + 1] - block.history_offsets[r];
  const std::int64_t candidates_all = block.candidate_offsets[r + 1] - block.candidate_offsets[r];
  const std::int64_t n = std::min<std::int64_t>(history_all, limits.history_len);
  const std::int64_t c = tokens - layout_->prefix_tokens() - n;
  b.cuts_.history_events_cut += history_all - n;
  b.cuts_.candidates_cut += candidates_all - c;

  const int prefix = layout_->prefix_tokens();
  for (int k = 0; k < prefix; ++k) write_kind(k, block, {row, 1, row, b.examples_});
  const Slice history{block.history_offsets[r + 1] - n, n, row, b.history_tokens_};
  const Slice candidates{block.candidate_offsets[r], c, row, b.candidate_tokens_};
  write_kind(schema_->history_kind(), block, history);
  write_kind(schema_->candidate_kind(), block, candidates);
  write_labels(block, candidates);

  if (event_time_column_ != kNoColumn && n > 0) {
    const auto& times = block.columns[to_size(event_time_column_)].ints;
    const auto& requests = block.columns[to_size(schema_->time_column())].ints;
    b.cuts_.request_before_history += times[to_size(history.begin + n - 1)] > requests[r] ? 1 : 0;
  }

  auto* position = b.at<std::int32_t>(layout_->positions) + b.tokens_;
  const auto before = static_cast<std::int32_t>(prefix + n);
  for (std::int32_t i = 0; i < before; ++i) position[i] = i;
  std::fill_n(position + before, c, before);

  const auto e = to_size(b.examples_);
  b.at<std::int64_t>(layout_->user_id)[e] = block.columns[to_size(schema_->user_column())].ints[r];
  b.at<std::int64_t>(layout_->dataset_row)[e] = block.first_row + row;
  b.at<std::int32_t>(layout_->history_len)[e] = static_cast<std::int32_t>(n);
  b.at<std::int32_t>(layout_->candidate_len)[e] = static_cast<std::int32_t>(c);
  ++b.examples_;
  b.tokens_ += static_cast<std::int32_t>(tokens);
  b.history_tokens_ += static_cast<std::int32_t>(n);
  b.candidate_tokens_ += static_cast<std::int32_t>(c);
  b.at<std::int32_t>(layout_->cu_tokens)[e + 1] = b.tokens_;
  b.at<std::int32_t>(layout_->cu_history)[e + 1] = b.history_tokens_;
  b.at<std::int32_t>(layout_->cu_candidates)[e + 1] = b.candidate_tokens_;
  return true;
}

void BatchCutter::write_kind(int kind, const RowBlock& block, const Slice& slice) {
  const auto& features = schema_->kinds()[to_size(kind)].features;
  const auto& arrays = layout_->features(kind);
  for (std::size_t f = 0; f < features.size(); ++f) {
    write_feature(features[f], arrays[f], block, slice);
  }
}

void BatchCutter::write_feature(const TokenFeature& f, const BatchLayout::FeatureArray& to,
                                const RowBlock& block, const Slice& s) {
  const ColumnValues& column = block.columns[to_size(f.column)];
  // Values are in one of the two: no offset from the other's null.
  const std::int64_t* ints = column.ints.empty() ? nullptr : column.ints.data() + s.begin;
  const float* floats = column.floats.empty() ? nullptr : column.floats.data() + s.begin;
  auto* out = batch_->at<std::int32_t>(to.array) + s.first * to.width;
  switch (f.kind) {
    case Kind::kId:
      encode_ids(ints, s.count, f, out);
      return;
    case Kind::kCategory:
      batch_->cuts_.unknown_categories += encode_categories(ints, s.count, f.size, out);
      return;
    case Kind::kBucket: {
      if (f.minus_column == kNoColumn) {
        encode_buckets(s.count, f, out, [floats](std::int64_t i) { return floats[i]; });
        return;
      }
      const bool scalar = schema_->columns()[to_size(f.minus_column)].shape == Shape::kScalar;
      const auto value = [ints](std::int64_t i) { return ints[i]; };
      const auto& minus = block.columns[to_size(f.minus_column)].ints;
      if (scalar) {
        const std::int64_t other = minus[to_size(s.row)];
        encode_distances(s.count, f, out, value, [other](std::int64_t) { return other; });
      } else {
        const std::int64_t* others = minus.data() + s.begin;
        encode_distances(s.count, f, out, value, [others](std::int64_t i) { return others[i]; });
      }
      return;
    }
    case Kind::kNumber:
      std::copy_n(floats, s.count, batch_->at<float>(to.array) + s.first);
      return;
    case Kind::kMultiHot:
      encode_masks(ints, s.count, f.size, batch_->at<std::uint64_t>(to.array) + s.first);
      return;
  }
}

void BatchCutter::write_labels(const RowBlock& block, const Slice& s) {
  if (schema_->actions_column() != kNoColumn) {
    const std::int64_t* masks =
        block.columns[to_size(schema_->actions_column())].ints.data() + s.begin;
    auto* out = batch_->at<std::uint64_t>(layout_->actions) + s.first;
    const std::uint64_t declared = schema_->action_mask();
    std::int64_t unknown = 0;
    for (std::int64_t i = 0; i < s.count; ++i) {
      const auto mask = static_cast<std::uint64_t>(masks[i]);
      out[i] = mask & declared;
      unknown += (mask & ~declared) != 0 ? 1 : 0;
    }
    batch_->cuts_.unknown_actions += unknown;
  } else {
    std::fill_n(batch_->at<std::uint64_t>(layout_->actions) + s.first, s.count, std::uint64_t{0});
  }
  const auto& targets = schema_->targets();
  for (std::size_t t = 0; t < targets.size(); ++t) {
    float* out = batch_->at<float>(layout_->targets[t]) + s.first;
    if (targets[t].column == kNoColumn) {
      std::fill_n(out, s.count, 0.0F);
    } else {
      std::copy_n(block.columns[to_size(targets[t].column)].floats.data() + s.begin, s.count, out);
    }
  }
}

}  // namespace paceline::features
