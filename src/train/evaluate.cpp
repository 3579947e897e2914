#include "train/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/log.hpp"
#include "data/batch_pipeline.hpp"
#include "data/dataset_files.hpp"
#include "data/file_columns.hpp"
#include "train/run_directory.hpp"

namespace paceline::train {
namespace {

constexpr const char* kOracle = "oracle_probability";

std::string number(const Metric& metric, bool with_interval = true) {
  if (!metric.value) return "-";
  std::string text = fmt::format("{:.4f}", *metric.value);
  if (with_interval && metric.ci)
    text += fmt::format(" [{:.4f} {:.4f}]", metric.ci->lo, metric.ci->hi);
  return text;
}

std::string oracle_column(const features::Action& action) {
  return fmt::format("{}.{}", kOracle, action.name);
}

// The logit of a probability; one that is none becomes NaN, 0 and 1 stay finite.
float logit_of(float probability) {
  constexpr double kLargest = 80.0;
  const double p = static_cast<double>(probability);
  if (!(p >= 0.0 && p <= 1.0)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::clamp(std::log(p) - std::log1p(-p), -kLargest, kLargest));
}

// What is collected about one trained action.
struct Scored {
  std::size_t action = 0;
  std::int32_t oracle_target = -1;
  MetricsAccumulator model, oracle;
};

// Adds one scored batch to the accumulators of the trained actions.
void accumulate(const features::Batch& batch, std::span<const float> logits, std::size_t width,
                const std::vector<features::Action>& actions, std::vector<Scored>& trained) {
  const auto cu = batch.cu_candidates();
  const auto labels = batch.actions();
  for (auto& s : trained) {
    const std::uint64_t bit = std::uint64_t{1} << actions[s.action].bit;
    const auto oracle =
        s.oracle_target >= 0 ? batch.target(s.oracle_target) : std::span<const float>();
    for (std::size_t e = 0; e < static_cast<std::size_t>(batch.examples()); ++e) {
      s.model.begin_example(batch.user_id()[e]);
      if (!oracle.empty()) s.oracle.begin_example(batch.user_id()[e]);
      for (auto c = static_cast<std::size_t>(cu[e]); c < static_cast<std::size_t>(cu[e + 1]); ++c) {
        const bool label = (labels[c] & bit) != 0;
        s.model.add(logits[c * width + s.action], label);
        if (!oracle.empty()) s.oracle.add(logit_of(oracle[c]), label);
      }
    }
  }
}

std::vector<Scored> scored_actions(const std::vector<features::Action>& actions,
                                   const Oracle* oracle) {
  std::vector<Scored> trained;
  for (std::size_t a = 0; a < actions.size(); ++a) {
    if (!actions[a].train) continue;
    Scored s;
    s.action = a;
    if (oracle != nullptr) s.oracle_target = oracle->target[a];
    trained.push_back(std::move(s));
  }
  return trained;
}

// Says which actions have no true probabilities although the first file has some.
void tell_missing(const std::vector<std::string>& paths, const features::Schema& schema,
                  const std::vector<std::size_t>& trained,
                  const std::vector<std::size_t>& present) {
  const auto files = data::find_files(paths);
  if (!files || files->empty()) return;
  const auto columns = data::file_columns(files->front());
  if (!columns) return;
  std::string missing, fields;
  bool found = false;
  for (const auto& column : columns->columns) {
    if (column.name == kOracle) found = true;
    if (!column.name.starts_with(std::string(kOracle) + '.')) continue;
    found = true;
    fields += (fields.empty() ? "" : ", ") + column.name.substr(std::string(kOracle).size() + 1);
  }
  for (const std::size_t a : trained) {
    if (std::find(present.begin(), present.end(), a) != present.end()) continue;
    missing += (missing.empty() ? "" : ", ") + schema.actions()[a].name;
  }
  if (!found || missing.empty()) return;
  log::info(fmt::format(
      "no oracle of {}: not every file has such a list of numbers in {}; {} has {}", missing,
      kOracle, files->front().path, fields.empty() ? "no fields there" : fields));
}

}  // namespace

Result<EvalSource> open_eval_source(const std::vector<std::string>& paths,
                                    const features::Schema& schema,
                                    const data::SourceOptions& options) {
  const auto open_with = [&](const std::vector<std::size_t>& actions) -> Result<EvalSource> {
    std::vector<std::string> columns;
    Oracle oracle{schema, std::vector<std::int32_t>(schema.actions().size(), -1)};
    for (const std::size_t a : actions) {
      oracle.target[a] = static_cast<std::int32_t>(schema.targets().size() + columns.size());
      columns.push_back(oracle_column(schema.actions()[a]));
    }
    oracle.schema = schema.with_carried(columns);
    PL_TRY(auto source, data::open_parquet(paths, oracle.schema, options));
    EvalSource opened{std::move(source), std::nullopt};
    if (!actions.empty()) opened.oracle = std::move(oracle);
    return opened;
  };
  std::vector<std::size_t> trained, present;
  for (std::size_t a = 0; a < schema.actions().size(); ++a) {
    if (schema.actions()[a].train) trained.push_back(a);
  }
  // All or none is the rule; else each is asked for. What else is wrong the last attempt says.
  if (auto all = open_with(trained)) return all;
  for (const std::size_t a : trained) {
    if (open_with({a})) present.push_back(a);
  }
  auto opened = open_with(present);
  if (opened) tell_missing(paths, schema, trained, present);
  return opened;
}

Result<SplitMetrics> evaluate(const TrainConfig& config, const std::string& split,
                              const data::Source& source, Scorer& scorer, StopRequest& stop,
                              const Oracle* oracle) {
  data::BatchPipelineOptions options = config.pipeline_options();
  options.shuffle_window = 0;
  options.epochs = 1;
  const features::Schema& schema = oracle != nullptr ? oracle->schema : config.schema;
  PL_TRY(const auto batches, data::BatchPipeline::create(source, schema, options, {}));

  const StopRequest::Hook wake(stop, [&] { batches->stop(); });

  const auto& actions = schema.actions();
  auto trained = scored_actions(actions, oracle);
  SplitMetrics metrics;
  metrics.split = split;
  const auto width = static_cast<std::size_t>(scorer.outputs());
  while (true) {
    PL_TRY(auto fetched, batches->next_batch());
    if (stop.requested()) return Error(Code::kCancelled, "the evaluation was stopped");
    if (fetched.state != data::FetchState::kBatch) break;
    const features::Batch& batch = fetched.lease.batch();
    accumulate(batch, scorer.score(batch), width, actions, trained);
  }
  metrics.cuts = batches->cuts();
  metrics.skipped = batches->skipped();
  MetricsOptions measure{.bootstrap = config.eval.bootstrap,
                         .seed = config.loop.seed,
                         .ndcg_k = config.eval.ndcg_k,
                         .stop = [&] { return stop.requested(); }};
  for (const auto& s : trained) {
    metrics.actions.push_back({actions[s.action].name, s.model.compute(measure), std::nullopt});
  }
  measure.bootstrap = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (trained[i].oracle_target >= 0)
      metrics.actions[i].oracle = trained[i].oracle.compute(measure);
  }
  if (stop.requested()) return Error(Code::kCancelled, "the evaluation was stopped");
  return metrics;
}

Result<void> append_eval(const std::string& run_dir, std::int64_t step,
                         const SplitMetrics& metrics) {
  const auto file = std::filesystem::path(run_dir) / "eval.jsonl";
  for (const auto& [action, report, oracle] : metrics.actions) {
    auto line = to_json(report, step, metrics.split, action);
    if (oracle) {
      const auto of_oracle = to_json(*oracle, step, metrics.split, action);
      for (const char* name : {"auc", "user_auc", "ne", "calibration", "ndcg", "log_loss"}) {
        line[std::string("oracle_") + name] = of_oracle[name];
      }
    }
    PL_TRY_VOID(append_json_line(file, line));
  }
  return {};
}

std::string metrics_table(const SplitMetrics& metrics) {
  constexpr const char* kRow = "{:<12} {:>10} {:>24} {:>24} {:>24} {:>8} {:>8} {:>8}";
  constexpr const char* kMore = " {:>10} {:>9}";
  const bool known = std::any_of(metrics.actions.begin(), metrics.actions.end(),
                                 [](const auto& a) { return a.oracle.has_value(); });
  std::string text = fmt::format(fmt::runtime(kRow), metrics.split, "candidates", "auc", "user_auc",
                                 "ne", "calib", "ndcg", "log_loss");
  if (known) text += fmt::format(fmt::runtime(kMore), "oracle_auc", "oracle_ne");
  for (const auto& [action, r, oracle] : metrics.actions) {
    text += '\n' + fmt::format(fmt::runtime(kRow), action, r.candidates, number(r.auc),
                               number(r.user_auc), number(r.ne), number(r.calibration, false),
                               number(r.ndcg, false), number(r.log_loss, false));
    if (oracle) text += fmt::format(fmt::runtime(kMore), number(oracle->auc), number(oracle->ne));
    if (r.non_finite > 0)
      text += fmt::format("\n  {} scores are not finite: no metrics", r.non_finite);
    if (oracle && oracle->non_finite > 0) {
      text +=
          fmt::format("\n  {} values of oracle_probability are no probabilities: no metrics of it",
                      oracle->non_finite);
    }
  }
  if (!metrics.actions.empty()) {
    const auto& r = metrics.actions.front().report;
    text += fmt::format("\n{} examples of {} users", r.examples, r.users);
    for (const auto& a : metrics.actions) {
      text += fmt::format("; {} users with one class of {}", a.report.users_one_class, a.action);
    }
  }
  const std::string cuts = features::cuts_text(metrics.cuts);
  if (!cuts.empty()) text += '\n' + cuts;
  const std::string skipped = data::skipped_text(metrics.skipped);
  if (!skipped.empty()) text += '\n' + skipped;
  return text;
}

}  // namespace paceline::train
