#include "train/metrics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/rng.hpp"
#include "train/metrics_auc.hpp"

namespace paceline::train {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// What all metrics but the AUC over all candidates are made of; sums over candidates, so that a
// resample of users is a weighted sum of these.
struct Sums {
  double candidates = 0, positives = 0, log_loss = 0, probability = 0;
  double two_class_candidates = 0, auc_by_candidates = 0;  // of users who have an AUC
  double ndcg_examples = 0, ndcg = 0;

  void add(const Sums& o, double w) {
    candidates += w * o.candidates;
    positives += w * o.positives;
    log_loss += w * o.log_loss;
    probability += w * o.probability;
    two_class_candidates += w * o.two_class_candidates;
    auc_by_candidates += w * o.auc_by_candidates;
    ndcg_examples += w * o.ndcg_examples;
    ndcg += w * o.ndcg;
  }
};

double ratio(double a, double b) { return b > 0 ? a / b : kUndefined; }

// Values in the order of the members of MetricsReport; NaN where undefined.
constexpr std::size_t kMetrics = 6;
using Values = std::array<double, kMetrics>;
constexpr std::array<Metric MetricsReport::*, kMetrics> kMembers = {
    &MetricsReport::auc,         &MetricsReport::user_auc, &MetricsReport::ne,
    &MetricsReport::calibration, &MetricsReport::ndcg,     &MetricsReport::log_loss};
constexpr std::array<const char*, kMetrics> kNames = {"auc",         "user_auc", "ne",
                                                      "calibration", "ndcg",     "log_loss"};

Values values_of(const Sums& s, double auc) {
  const double log_loss = ratio(s.log_loss, s.candidates);
  const double rate = ratio(s.positives, s.candidates);
  const double entropy =
      rate > 0 && rate < 1 ? -(rate * std::log(rate) + (1 - rate) * std::log1p(-rate)) : 0.0;
  return {auc,
          ratio(s.auc_by_candidates, s.two_class_candidates),
          ratio(log_loss, entropy),
          ratio(s.probability, s.positives),
          ratio(s.ndcg, s.ndcg_examples),
          log_loss};
}

// log(1 + e^x) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

// Prefix sums of the discounts 1 / log2(rank + 1): [i] is the sum over the first i ranks.
std::vector<double> discount_sums(std::size_t k) {
  std::vector<double> sums(k + 1, 0.0);
  for (std::size_t i = 0; i < k; ++i) {
    sums[i + 1] = sums[i] + 1.0 / std::log2(static_cast<double>(i) + 2.0);
  }
  return sums;
}

// NDCG of one example, or NaN without a positive. `order` is scratch.
double example_ndcg(std::span<const float> logits, std::span<const std::uint8_t> labels,
                    const std::vector<double>& discounts, std::vector<std::uint32_t>& order) {
  const std::size_t n = logits.size(), k = std::min(n, discounts.size() - 1);
  const auto positives = static_cast<std::size_t>(
      std::count_if(labels.begin(), labels.end(), [](std::uint8_t y) { return y != 0; }));
  if (positives == 0) return kUndefined;
  order.resize(n);
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  double dcg = 0.0;
  for (std::size_t first = 0; first < k;) {
    std::size_t end = first, hits = 0;
    for (; end < n && logits[order[end]] == logits[order[first]]; ++end) {
      hits += labels[order[end]] != 0 ? 1 : 0;
    }
    dcg += static_cast<double>(hits) / static_cast<double>(end - first) *
           (discounts[std::min(end, k)] - discounts[first]);
    first = end;
  }
  return dcg / discounts[std::min(positives, k)];
}

// How often each user is drawn in the resamples first .. first + kWeightLanes - 1: as many draws
// with replacement as there are users. Interleaved [user][lane].
void draw_weights(const CounterRng& rng, std::size_t first, std::vector<std::uint8_t>& weights) {
  const std::size_t users = weights.size() / kWeightLanes;
  std::vector<std::uint8_t> counts(users);
  for (std::size_t lane = 0; lane < kWeightLanes; ++lane) {
    std::fill(counts.begin(), counts.end(), std::uint8_t{0});
    for (std::size_t draw = 0; draw < users; draw += 4) {
      const auto words = rng.words(draw / 4, first + lane);
      for (std::size_t i = 0; i < std::min<std::size_t>(4, users - draw); ++i) {
        std::uint8_t& count = counts[std::uint64_t{words[i]} * users >> 32];
        // A count is about Poisson(1), so 255 bounds it in practice.
        count = static_cast<std::uint8_t>(count + (count < 255 ? 1 : 0));
      }
    }
    for (std::size_t u = 0; u < users; ++u) weights[u * kWeightLanes + lane] = counts[u];
  }
}

// The p-quantile of sorted values by linear interpolation.
double quantile(const std::vector<double>& sorted, double p) {
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

void add_intervals(const std::vector<RankedEntry>& ranked, const std::vector<Sums>& by_user,
                   const MetricsOptions& options, MetricsReport& report) {
  const CounterRng rng(options.seed, RngStream::kBootstrap);
  const auto resamples = static_cast<std::size_t>(options.bootstrap);
  std::array<std::vector<double>, kMetrics> seen;
  std::vector<std::uint8_t> weights(by_user.size() * kWeightLanes);
  for (std::size_t first = 0; first < resamples; first += kWeightLanes) {
    if (options.stop()) return;
    draw_weights(rng, first, weights);
    const auto auc = weighted_auc(ranked, weights);
    std::array<Sums, kWeightLanes> sums;
    for (std::size_t u = 0; u < by_user.size(); ++u) {
      for (std::size_t lane = 0; lane < kWeightLanes; ++lane) {
        sums[lane].add(by_user[u], weights[u * kWeightLanes + lane]);
      }
    }
    for (std::size_t lane = 0; lane < std::min(kWeightLanes, resamples - first); ++lane) {
      const Values values = values_of(sums[lane], auc[lane]);
      for (std::size_t m = 0; m < kMetrics; ++m) {
        if (!std::isnan(values[m])) seen[m].push_back(values[m]);
      }
    }
  }
  for (std::size_t m = 0; m < kMetrics; ++m) {
    Metric& metric = report.*kMembers[m];
    if (!metric.value || 2 * seen[m].size() < resamples) continue;
    std::sort(seen[m].begin(), seen[m].end());
    metric.ci = Interval{quantile(seen[m], 0.025), quantile(seen[m], 0.975)};
  }
}

}  // namespace

void MetricsAccumulator::reserve(std::size_t examples, std::size_t candidates) {
  examples_.reserve(examples);
  logits_.reserve(candidates);
  labels_.reserve(candidates);
}

void MetricsAccumulator::begin_example(std::int64_t user) {
  const auto index = static_cast<std::uint32_t>(users_.size());
  const auto it = users_.emplace(user, index).first;
  PL_CHECK(users_.size() <= kMaxRankedUsers, "at most 2^30 users");
  examples_.push_back({it->second, static_cast<std::uint32_t>(logits_.size())});
}

void MetricsAccumulator::add(float logit, bool label) {
  PL_CHECK(!examples_.empty(), "a candidate belongs to an example");
  PL_CHECK(logits_.size() < std::numeric_limits<std::uint32_t>::max(),
           "at most 2^32 - 1 candidates");
  logits_.push_back(logit);
  labels_.push_back(label ? 1 : 0);
}

MetricsReport MetricsAccumulator::compute(const MetricsOptions& options) const {
  PL_CHECK(options.ndcg_k >= 1 && options.bootstrap >= 0, "k >= 1, resamples >= 0");
  MetricsReport report;
  report.examples = static_cast<std::int64_t>(examples_.size());
  report.candidates = candidates();
  report.users = static_cast<std::int64_t>(users_.size());
  report.ndcg_k = options.ndcg_k;
  report.bootstrap = options.bootstrap;
  report.positives = std::count(labels_.begin(), labels_.end(), std::uint8_t{1});
  report.non_finite =
      std::count_if(logits_.begin(), logits_.end(), [](float x) { return !std::isfinite(x); });
  if (report.non_finite > 0) return report;

  const std::size_t n = logits_.size();
  const auto discounts = discount_sums(static_cast<std::size_t>(options.ndcg_k));
  std::vector<Sums> by_user(users_.size());
  std::vector<std::uint32_t> user_of(n), order;
  for (std::size_t e = 0; e < examples_.size(); ++e) {
    const std::size_t begin = examples_[e].begin;
    const std::size_t end = e + 1 < examples_.size() ? examples_[e + 1].begin : n;
    Sums& sums = by_user[examples_[e].user];
    for (std::size_t i = begin; i < end; ++i) {
      const double x = logits_[i], y = labels_[i];
      user_of[i] = examples_[e].user;
      sums.candidates += 1;
      sums.positives += y;
      sums.log_loss += softplus(x) - y * x;
      sums.probability += sigmoid(x);
    }
    const double ndcg =
        example_ndcg(std::span(logits_).subspan(begin, end - begin),
                     std::span(labels_).subspan(begin, end - begin), discounts, order);
    if (std::isnan(ndcg)) {
      ++report.examples_without_positive;
    } else {
      sums.ndcg_examples += 1;
      sums.ndcg += ndcg;
    }
  }

  const auto ranked = rank_candidates(logits_, labels_, user_of);
  user_of = {};
  const auto pairs = ordered_pairs_by_user(ranked, by_user.size());
  Sums total;
  for (std::size_t u = 0; u < by_user.size(); ++u) {
    Sums& s = by_user[u];
    const double all_pairs = s.positives * (s.candidates - s.positives);
    if (all_pairs > 0) {
      s.two_class_candidates = s.candidates;
      s.auc_by_candidates = s.candidates * pairs[u] / all_pairs;
    } else {
      ++report.users_one_class;
    }
    total.add(s, 1.0);
  }
  const Values values = values_of(total, auc_of(ranked).value_or(kUndefined));
  for (std::size_t m = 0; m < kMetrics; ++m) {
    if (!std::isnan(values[m])) (report.*kMembers[m]).value = values[m];
  }
  if (options.bootstrap > 0 && by_user.size() >= 2) add_intervals(ranked, by_user, options, report);
  return report;
}

nlohmann::json to_json(const MetricsReport& report, std::int64_t step, const std::string& split,
                       const std::string& action) {
  nlohmann::json j = {{"step", step},
                      {"split", split},
                      {"action", action},
                      {"examples", report.examples},
                      {"candidates", report.candidates},
                      {"positives", report.positives},
                      {"users", report.users},
                      {"users_one_class", report.users_one_class},
                      {"examples_without_positive", report.examples_without_positive},
                      {"non_finite", report.non_finite},
                      {"ndcg_k", report.ndcg_k},
                      {"bootstrap", report.bootstrap},
                      {"ci", nlohmann::json::object()}};
  for (std::size_t m = 0; m < kMetrics; ++m) {
    const Metric& metric = report.*kMembers[m];
    auto& value = j[kNames[m]] = nullptr;
    if (metric.value) value = *metric.value;
    auto& ci = j["ci"][kNames[m]] = nullptr;
    if (metric.ci) ci = nlohmann::json::array({metric.ci->lo, metric.ci->hi});
  }
  return j;
}

std::optional<double> exact_auc(const std::vector<float>& scores,
                                const std::vector<std::uint8_t>& labels) {
  return auc_of(rank_candidates(scores, labels, std::vector<std::uint32_t>(scores.size(), 0)));
}

}  // namespace paceline::train
