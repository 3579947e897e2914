// How well scores rank and how well they are calibrated, for one action of one split.
//
//   auc          area under the ROC curve over all candidates; exact, a tie counts one half
//   user_auc     AUC within each user, mean over users weighted by candidates; users whose
//                candidates all have one label have no AUC: left out and counted
//   log_loss     mean over candidates of -(y log p + (1 - y) log(1 - p)), natural logarithm
//   ne           log_loss / entropy of the positive rate of the same candidates
//   calibration  sum of p / sum of y
//   ndcg         NDCG@k with binary gains and discount 1 / log2(rank + 1), mean over examples;
//                equal scores share the mean gain of the ranks they fill; examples without a
//                positive are left out and counted
//
// p = sigmoid(logit). A value that the data do not define (one label only, no candidates) is
// absent, and null in JSON. A logit that is not finite leaves every value absent and is counted.
// Intervals: percentile bootstrap at 95 % over users, deterministic in (data, seed).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace paceline::train {

struct MetricsOptions {
  int bootstrap = 200;     // resamples; 0: no intervals
  std::uint64_t seed = 1;  // of the resamples
  int ndcg_k = 10;         // >= 1
  // Looked at between resamples; true ends compute() early, without intervals.
  std::function<bool()> stop = [] { return false; };
};

struct Interval {
  double lo = 0.0, hi = 0.0;
};

struct Metric {
  std::optional<double> value;
  // Absent also with fewer than two users, or when most resamples do not define the metric.
  std::optional<Interval> ci;
};

struct MetricsReport {
  std::int64_t examples = 0;
  std::int64_t candidates = 0;
  std::int64_t positives = 0;
  std::int64_t users = 0;
  std::int64_t users_one_class = 0;            // left out of user_auc
  std::int64_t examples_without_positive = 0;  // left out of ndcg
  std::int64_t non_finite = 0;                 // logits that are NaN or infinite
  int ndcg_k = 10;
  int bootstrap = 0;
  Metric auc, user_auc, ne, calibration, ndcg, log_loss;
};

// The object of eval.jsonl: step, split, action, examples, candidates, auc, user_auc, ne,
// calibration, ndcg, log_loss, ci {metric: [lo, hi] or null}, and the counts of the report.
nlohmann::json to_json(const MetricsReport& report, std::int64_t step, const std::string& split,
                       const std::string& action);

// Collects scored candidates, example by example; 5 bytes per candidate. Not thread-safe.
class MetricsAccumulator {
 public:
  // Optional: avoids growth. At most 2^32 - 1 candidates and 2^30 users.
  void reserve(std::size_t examples, std::size_t candidates);

  void begin_example(std::int64_t user);
  // A candidate of the example begun last.
  void add(float logit, bool label);

  std::int64_t candidates() const { return static_cast<std::int64_t>(logits_.size()); }

  // O(n log n) in candidates plus O(n) per resample; about 100 bytes per user, 20 per candidate.
  MetricsReport compute(const MetricsOptions& options = {}) const;

 private:
  struct Example {
    std::uint32_t user;   // index in order of first appearance
    std::uint32_t begin;  // first candidate
  };

  std::unordered_map<std::int64_t, std::uint32_t> users_;
  std::vector<Example> examples_;
  std::vector<float> logits_;
  std::vector<std::uint8_t> labels_;
};

// Exact AUC of `scores` (ties count one half); absent when there is one label only. The scores
// must not be NaN. Radix sort: O(n), 16 bytes per candidate.
std::optional<double> exact_auc(const std::vector<float>& scores,
                                const std::vector<std::uint8_t>& labels);

}  // namespace paceline::train
