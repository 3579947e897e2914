#include "train/evaluate.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "data/batch_pipeline.hpp"
#include "train/run_directory.hpp"

namespace paceline::train {
namespace {

std::string number(const Metric& metric, bool with_interval = true) {
  if (!metric.value) return "-";
  std::string text = fmt::format("{:.4f}", *metric.value);
  if (with_interval && metric.ci)
    text += fmt::format(" [{:.4f} {:.4f}]", metric.ci->lo, metric.ci->hi);
  return text;
}

// Adds one scored batch to the accumulators of the trained actions.
void accumulate(const features::Batch& batch, std::span<const float> logits, std::size_t width,
                const std::vector<features::Action>& actions,
                std::vector<std::pair<std::size_t, MetricsAccumulator>>& trained) {
  const auto cu = batch.cu_candidates();
  const auto labels = batch.actions();
  for (auto& [a, accumulator] : trained) {
    const std::uint64_t bit = std::uint64_t{1} << actions[a].bit;
    for (std::size_t e = 0; e < static_cast<std::size_t>(batch.examples()); ++e) {
      accumulator.begin_example(batch.user_id()[e]);
      for (auto c = static_cast<std::size_t>(cu[e]); c < static_cast<std::size_t>(cu[e + 1]); ++c) {
        accumulator.add(logits[c * width + a], (labels[c] & bit) != 0);
      }
    }
  }
}

}  // namespace

Result<SplitMetrics> evaluate(const TrainConfig& config, const std::string& split,
                              const data::Source& source, model::Ranker& ranker,
                              const model::Weights& weights, ops::Context& ctx, StopRequest& stop) {
  data::BatchPipelineOptions options = config.pipeline_options();
  options.shuffle_window = 0;
  options.epochs = 1;
  PL_TRY(const auto batches, data::BatchPipeline::create(source, config.schema, options, {}));

  const StopRequest::Hook wake(stop, [&] { batches->stop(); });

  const auto& actions = config.schema.actions();
  std::vector<std::pair<std::size_t, MetricsAccumulator>> trained;
  for (std::size_t a = 0; a < actions.size(); ++a) {
    if (actions[a].train) trained.emplace_back(a, MetricsAccumulator{});
  }
  SplitMetrics metrics;
  metrics.split = split;
  const auto width = static_cast<std::size_t>(ranker.outputs());
  while (true) {
    PL_TRY(auto fetched, batches->next_batch());
    if (stop.requested()) return Error(Code::kCancelled, "the evaluation was stopped");
    if (fetched.state != data::FetchState::kBatch) break;
    const features::Batch& batch = fetched.lease.batch();
    accumulate(batch, ranker.forward(ctx, weights, batch), width, actions, trained);
  }
  metrics.cuts = batches->cuts();
  for (auto& [a, accumulator] : trained) {
    metrics.actions.push_back(
        {actions[a].name, accumulator.compute({.bootstrap = config.eval.bootstrap,
                                               .seed = config.loop.seed,
                                               .ndcg_k = config.eval.ndcg_k,
                                               .stop = [&] { return stop.requested(); }})});
  }
  if (stop.requested()) return Error(Code::kCancelled, "the evaluation was stopped");
  return metrics;
}

Result<void> append_eval(const std::string& run_dir, std::int64_t step,
                         const SplitMetrics& metrics) {
  const auto file = std::filesystem::path(run_dir) / "eval.jsonl";
  for (const auto& [action, report] : metrics.actions) {
    PL_TRY_VOID(append_json_line(file, to_json(report, step, metrics.split, action)));
  }
  return {};
}

std::string metrics_table(const SplitMetrics& metrics) {
  constexpr const char* kRow = "{:<12} {:>10} {:>24} {:>24} {:>24} {:>8} {:>8} {:>8}";
  std::string text = fmt::format(fmt::runtime(kRow), metrics.split, "candidates", "auc", "user_auc",
                                 "ne", "calib", "ndcg", "log_loss");
  for (const auto& [action, r] : metrics.actions) {
    text += '\n' + fmt::format(fmt::runtime(kRow), action, r.candidates, number(r.auc),
                               number(r.user_auc), number(r.ne), number(r.calibration, false),
                               number(r.ndcg, false), number(r.log_loss, false));
    if (r.non_finite > 0)
      text += fmt::format("\n  {} scores are not finite: no metrics", r.non_finite);
  }
  if (!metrics.actions.empty()) {
    const auto& r = metrics.actions.front().report;
    text += fmt::format("\n{} examples of {} users", r.examples, r.users);
    for (const auto& [action, a] : metrics.actions) {
      text += fmt::format("; {} users with one class of {}", a.users_one_class, action);
    }
  }
  const std::string cuts = features::cuts_text(metrics.cuts);
  if (!cuts.empty()) text += '\n' + cuts;
  return text;
}

}  // namespace paceline::train
