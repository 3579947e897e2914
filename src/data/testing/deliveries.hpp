// What a BatchPipeline delivers, byte for byte, and short ways to open and train one. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch_pipeline.hpp"

namespace paceline::data::testing {

// What a batch says, byte for byte, and where it stands.
struct Seen {
  std::vector<std::int64_t> rows;
  std::string bytes;
  Position position;
  std::int64_t epoch = 0;
  bool last = false;
  friend bool operator==(const Seen&, const Seen&) = default;
};

template <typename T>
void add_bytes(std::string& to, std::span<const T> values) {
  to.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

inline Seen seen(const BatchPipeline::Lease& lease) {
  const auto& b = lease.batch();
  Seen s{{b.dataset_row().begin(), b.dataset_row().end()},
         {},
         lease.position(),
         lease.epoch(),
         lease.last_of_epoch()};
  add_bytes(s.bytes, b.cu_tokens());
  add_bytes(s.bytes, b.cu_history());
  add_bytes(s.bytes, b.cu_candidates());
  add_bytes(s.bytes, b.positions());
  add_bytes(s.bytes, b.actions());
  add_bytes(s.bytes, b.user_id());
  for (int k = 0; k <= b.layout().prefix_tokens() + 1; ++k) {
    for (int f = 0; f < static_cast<int>(b.layout().features(k).size()); ++f) {
      const auto kind = b.layout().features(k)[static_cast<std::size_t>(f)].kind;
      if (kind == features::Kind::kNumber) {
        add_bytes(s.bytes, b.feature_float(k, f));
      } else if (kind == features::Kind::kMultiHot) {
        add_bytes(s.bytes, b.feature_mask(k, f));
      } else {
        add_bytes(s.bytes, b.feature_int(k, f));
      }
    }
  }
  return s;
}

inline std::unique_ptr<BatchPipeline> open(const Source& source, const features::Schema& schema,
                                           const BatchPipelineOptions& options,
                                           const Position& start = {}) {
  auto pipeline = BatchPipeline::create(source, schema, options, start);
  PL_CHECK(pipeline.ok(), pipeline.error().text());
  return std::move(*pipeline);
}

// Trains at most `most` batches; what ended it is in `state` or `error`.
struct Trained {
  std::vector<Seen> batches;
  FetchState state = FetchState::kBatch;
  std::optional<Error> error;
};
inline Trained train(BatchPipeline& pipeline, std::size_t most = SIZE_MAX) {
  Trained run;
  while (run.batches.size() < most) {
    auto fetched = pipeline.next_batch();
    if (!fetched) {
      run.error = fetched.error();
      break;
    }
    run.state = fetched->state;
    if (fetched->state != FetchState::kBatch) break;
    run.batches.push_back(seen(fetched->lease));
    fetched->lease.mark_trained();
    EXPECT_EQ(pipeline.offsets_to_commit(), run.batches.back().position);
  }
  return run;
}

inline std::vector<std::int64_t> rows_of(const std::vector<Seen>& batches,
                                         std::int64_t epoch = -1) {
  std::vector<std::int64_t> rows;
  for (const auto& b : batches) {
    if (epoch < 0 || b.epoch == epoch) rows.insert(rows.end(), b.rows.begin(), b.rows.end());
  }
  return rows;
}

inline void expect_all_once(std::vector<std::int64_t> rows, std::int64_t count,
                            const std::string& what) {
  std::sort(rows.begin(), rows.end());
  ASSERT_EQ(static_cast<std::int64_t>(rows.size()), count) << what;
  for (std::int64_t r = 0; r < count; ++r) {
    ASSERT_EQ(rows[static_cast<std::size_t>(r)], r) << what;
  }
}

inline BatchPipelineOptions options_of(std::int32_t examples, std::int64_t window = 2) {
  BatchPipelineOptions o;
  o.limits = {.examples = examples, .tokens = 0, .history_len = 8, .candidates = 4};
  o.shuffle_window = window;
  o.seed = 3;
  return o;
}

}  // namespace paceline::data::testing
