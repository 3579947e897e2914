#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "data/dataset_listing.hpp"
#include "model/ranker.hpp"
#include "telemetry/progress.hpp"
#include "train/evaluate.hpp"
#include "train/run_directory.hpp"
#include "train/run_state.hpp"

namespace paceline::train {

struct Trainer::Impl {
  Impl(TrainConfig c, TrainOptions o, telemetry::Progress& p, RunDirectory d,
       std::unique_ptr<data::Source> s)
      : config(std::move(c)),
        options(std::move(o)),
        progress(p),
        directory(std::move(d)),
        source(std::move(s)),
        pool(config.threads()),
        ctx(pool),
        ranker(config.model, config.schema, config.limits, ops::cpu_ops(), true),
        weights(ranker.layout().size(), config.schema.table_rows(), config.model.table_width),
        dense_grad(static_cast<std::size_t>(ranker.layout().size()) * sizeof(float)),
        table_grad(static_cast<std::size_t>(ranker.max_lookups() * config.model.table_width) *
                   sizeof(float)),
        optimizer(config.optimizer, ranker.layout(), ops::cpu_ops(), ranker.max_lookups()) {}

  Result<void> restore();
  Result<void> refuse_if_all_broken() const;
  Result<void> open_eval_source();
  Result<void> open_batches();
  Result<TrainSummary> loop();
  Result<void> train_batch(data::BatchPipeline::Lease& lease, double wait_s,
                           Clock::time_point start);
  Result<void> after_step(TrainSummary& summary);
  Result<void> log_step(const data::BatchPipeline::Lease& lease, double loss,
                        const StepOutcome& outcome, double factor, double step_s, double wait_s);
  void show(double loss, std::int64_t epoch);
  Result<void> run_evaluation(TrainSummary& summary);
  Result<void> save(TrainSummary& summary);
  double run_progress(std::int64_t rows) const {
    const auto all = static_cast<double>(config.loop.epochs) * static_cast<double>(source->rows());
    return all > 0 ? static_cast<double>(rows) / all : 1.0;
  }
  model::Weights view() const { return {weights.dense(), weights.table()}; }

  TrainConfig config;
  TrainOptions options;
  telemetry::Progress& progress;
  RunDirectory directory;
  std::unique_ptr<data::Source> source;
  std::unique_ptr<data::Source> eval_source;
  pipeline::TaskPool pool;
  ops::Context ctx;
  model::Ranker ranker;
  ModelState weights;
  HostBuffer dense_grad, table_grad;
  Optimizer optimizer;
  std::unique_ptr<data::BatchPipeline> batches;
  StopRequest stop;

  RunState run;
  std::int64_t saved_step = -1;
  Clock::time_point saved_at{};
  Clock::time_point loop_start{};
  std::int64_t loop_examples = 0;
  double loop_wait_s = 0.0;
  double idle_s = 0.0;  // evaluation and saving: left out of the rate
  std::int64_t logged_block_wait_ns = 0;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(TrainConfig config, TrainOptions options,
                                                 telemetry::Progress& progress) {
  PL_TRY(const auto paths, config.data.split("train"));
  PL_TRY(auto source, data::open_parquet(paths, config.schema, config.source_options()));
  PL_TRY(auto directory, RunDirectory::open(config.run_dir));
  std::unique_ptr<Trainer> trainer(new Trainer(std::make_unique<Impl>(
      std::move(config), std::move(options), progress, std::move(directory), std::move(source))));
  auto& t = *trainer->impl_;
  PL_TRY_VOID(t.directory.check_is_run(t.config.checkpoint.dir));
  PL_TRY_VOID(t.directory.lock_checkpoints(t.config.checkpoint.dir));
  PL_TRY_VOID(t.open_eval_source());
  PL_TRY_VOID(t.restore());
  PL_TRY_VOID(t.open_batches());
  PL_TRY_VOID(t.directory.write_config(t.config.resolved));
  PL_TRY_VOID(t.directory.write_data_files(t.source->fingerprint(), t.source->files()));
  PL_TRY_VOID(t.directory.forget_after(t.run.counters.step));
  return trainer;
}

Result<void> Trainer::Impl::open_batches() {
  auto pipeline_options = config.pipeline_options();
  pipeline_options.allow_changed_data = options.allow_changed_data;
  const bool changed =
      run.position != data::Position{} && run.position.fingerprint != source->fingerprint();
  if (changed) {
    // Without a listing of the run's own nothing is named.
    const auto was = directory.data_files(run.position.fingerprint);
    const std::string difference =
        was && !was->empty() ? data::first_difference(*was, source->files()) : "";
    const std::string text =
        fmt::format("data.train is not what {} was trained on{}{}", config.run_dir,
                    difference.empty() ? "" : ": ", difference);
    if (!options.allow_changed_data) {
      return Error(Code::kInvalidArgument,
                   text +
                       "; put the files back, use another run.dir, or --allow-changed-data to "
                       "begin the epoch again with the files as they are");
    }
    if (run.position.epoch < config.loop.epochs) log::warning(text);
  }
  PL_TRY(batches,
         data::BatchPipeline::create(*source, config.schema, pipeline_options, run.position));
  run.position = batches->offsets_to_commit();
  return {};
}

Result<void> Trainer::Impl::open_eval_source() {
  if (config.eval.every_steps == 0) return {};
  PL_TRY(const auto paths, config.data.split(config.eval.split));
  PL_TRY(eval_source, data::open_parquet(paths, config.schema, config.source_options()));
  return {};
}

Result<void> Trainer::Impl::restore() {
  run.config = config.values;
  auto loaded = checkpoint::load_newest(config.checkpoint.dir);
  if (!loaded) {
    if (loaded.error().code() != Code::kNotFound) return Error(std::move(loaded.error()));
    PL_TRY_VOID(refuse_if_all_broken());
    model::initialize(ranker.layout(), config.loop.seed, weights.dense());
    model::initialize_table(config.loop.seed, config.model.table_width, weights.table());
    return {};
  }
  PL_TRY(const RunState saved, state_from_json(loaded->state));
  PL_TRY_VOID(check_keys(config.run_dir, changed_keys(saved.config, config.values),
                         options.allow_changed_keys));
  PL_TRY(run, from_loaded(*loaded, ranker.layout(), weights));
  run.config = config.values;
  // A run that ended for its bad steps gets as many more.
  if (run.counters.bad_in_a_row >= config.loop.max_bad_steps) run.counters.bad_in_a_row = 0;
  saved_step = run.counters.step;
  progress.line(fmt::format("going on from {} (step {}, {} examples trained)",
                            loaded->path.string(), run.counters.step, run.counters.examples));
  return {};
}

// Starting over would forget what was trained, which is not for the program to decide.
Result<void> Trainer::Impl::refuse_if_all_broken() const {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(config.checkpoint.dir, none)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".corrupt-") == std::string::npos) continue;
    return Error(
        Code::kCorruptData,
        fmt::format("{}: no checkpoint is whole ({} was set aside); to start over use another "
                    "run.dir, or remove what was set aside",
                    config.checkpoint.dir, name));
  }
  return {};
}

Result<TrainSummary> Trainer::run() {
  auto summary = impl_->loop();
  impl_->progress.finish();
  return summary;
}

Result<TrainSummary> Trainer::Impl::loop() {
  TrainSummary summary;
  summary.first_step = run.counters.step;
  loop_start = saved_at = Clock::now();
  const StopRequest::Hook wake(stop, [this] { batches->stop(); });
  const auto finish = [&]() -> Result<TrainSummary> {
    if (run.counters.step != saved_step) PL_TRY_VOID(save(summary));
    summary.step = run.counters.step;
    summary.examples = loop_examples;
    summary.skipped_steps = run.counters.skipped_steps;
    summary.seconds = seconds_since(loop_start);
    summary.wait_seconds = loop_wait_s;
    summary.cuts = batches->cuts();
    summary.skipped = batches->skipped();
    summary.block_waits = batches->block_waits();
    summary.batch_waits = batches->batch_waits();
    return summary;
  };
  // What was trained before the error is kept; a failing save does not hide the error.
  const auto fail = [&](Error error) -> Error {
    if (auto finished = finish(); !finished) log::error(finished.error().text());
    return error;
  };

  // A stop may have cut the evaluation of the step that a resume starts from.
  if (const auto at = run.counters.step; config.eval.every_steps > 0 && at > 0 &&
                                         at % config.eval.every_steps == 0 &&
                                         !directory.has_evaluation(at, config.eval.split)) {
    PL_TRY_VOID(run_evaluation(summary));
  }

  while (config.loop.max_steps == 0 || run.counters.step < config.loop.max_steps) {
    if (stop.requested()) {
      summary.end = TrainEnd::kStopped;
      return finish();
    }
    const auto start = Clock::now();
    auto fetched = batches->next_batch();
    const double wait_s = seconds_since(start);
    if (!fetched) return fail(std::move(fetched.error()));
    if (fetched->state == data::FetchState::kEnd) break;
    if (fetched->state == data::FetchState::kStopped) continue;
    if (auto trained = train_batch(fetched->lease, wait_s, start); !trained) {
      return fail(std::move(trained.error()));
    }
    if (auto done = after_step(summary); !done) return fail(std::move(done.error()));
  }
  return finish();
}

Result<void> Trainer::Impl::train_batch(data::BatchPipeline::Lease& lease, double wait_s,
                                        Clock::time_point start) {
  const features::Batch& batch = lease.batch();
  auto& counters = run.counters;
  const double factor =
      config.schedule.factor(run_progress(run.position.rows), run_progress(lease.position().rows));
  ranker.forward(ctx, view(), batch);
  const double loss = ranker.loss(ctx, batch, {});
  const auto lookups = ranker.lookups();
  const auto table_grads = table_grad.as<float>().subspan(
      0, lookups.size() * static_cast<std::size_t>(config.model.table_width));
  ranker.backward(ctx, view(), batch, {dense_grad.as<float>(), table_grads});
  const StepOutcome outcome =
      optimizer.step(ctx, weights, {dense_grad.as<float>(), table_grads, lookups}, loss, factor);

  ++counters.step;
  counters.examples += batch.examples();
  counters.tokens += batch.tokens();
  loop_examples += batch.examples();
  loop_wait_s += wait_s;
  lease.mark_trained();
  run.position = batches->offsets_to_commit();
  if (options.on_batch) options.on_batch(batch.dataset_row());

  counters.bad_in_a_row = outcome.applied ? 0 : counters.bad_in_a_row + 1;
  if (!outcome.applied) {
    ++counters.skipped_steps;
    log::warning(
        fmt::format("step {}: loss {} or gradient norm {} is not finite; the batch is skipped "
                    "({} in a row)",
                    counters.step, loss, outcome.grad_norm, counters.bad_in_a_row));
  }
  if (counters.step % config.loop.log_every == 0 || !outcome.applied) {
    PL_TRY_VOID(log_step(lease, loss, outcome, factor, seconds_since(start), wait_s));
  }
  const std::int64_t epoch = lease.epoch();
  lease.give_back();
  show(loss, epoch);
  if (counters.bad_in_a_row >= config.loop.max_bad_steps) {
    return Error(
        Code::kInternal,
        fmt::format("step {}: {} steps in a row had a non-finite loss or gradient "
                    "(train.max_bad_steps = {}); a lower optimizer.lr or a check of the number "
                    "columns may help",
                    counters.step, counters.bad_in_a_row, config.loop.max_bad_steps));
  }
  return {};
}

Result<void> Trainer::Impl::log_step(const data::BatchPipeline::Lease& lease, double loss,
                                     const StepOutcome& outcome, double factor, double step_s,
                                     double wait_s) {
  nlohmann::json line;
  line["step"] = run.counters.step;
  line["epoch"] = lease.epoch();
  // JSON has no NaN: a loss that is not finite is written as null.
  line["loss"] = loss;
  line["examples"] = run.counters.examples;
  line["tokens"] = run.counters.tokens;
  line["lr"] = config.optimizer.lr * factor;
  line["grad_norm"] = outcome.grad_norm;
  line["applied"] = outcome.applied;
  line["step_ms"] = step_s * 1e3;
  // What the loop waited in this step, and what the batcher waited for readers since the last line.
  const auto blocks_ns = batches->block_waits().consumer_wait_ns;
  line["wait_ms"] = {{"batches", wait_s * 1e3},
                     {"blocks", static_cast<double>(blocks_ns - logged_block_wait_ns) * 1e-6}};
  logged_block_wait_ns = blocks_ns;
  line["examples_per_s"] = step_s > 0 ? lease.batch().examples() / step_s : 0.0;
  return directory.append_metrics(line);
}

void Trainer::Impl::show(double loss, std::int64_t epoch) {
  telemetry::ProgressSample s;
  const double busy_s = seconds_since(loop_start) - idle_s;
  s.step = run.counters.step;
  s.epochs = config.loop.epochs;
  s.epoch = epoch;
  s.loss = loss;
  s.examples_per_s = busy_s > 0 ? static_cast<double>(loop_examples) / busy_s : 0.0;
  s.wait_share = busy_s > 0 ? loop_wait_s / busy_s : 0.0;
  s.fraction = run_progress(run.position.rows);
  const auto rows = static_cast<double>(run.position.rows);
  double left = s.fraction > 0.0 ? rows / s.fraction - rows : 0.0;
  if (config.loop.max_steps > 0) {
    // The run may end sooner: at max_steps, at the examples that a step has taken so far.
    const auto steps = static_cast<double>(run.counters.step);
    const auto most = static_cast<double>(config.loop.max_steps);
    left = std::min(left, rows / steps * (most - steps));
    s.fraction = std::max(s.fraction, steps / most);
  }
  s.eta_s = s.examples_per_s > 0 ? left / s.examples_per_s : 0.0;
  progress.update(s);
}

Result<void> Trainer::Impl::after_step(TrainSummary& summary) {
  const std::int64_t step = run.counters.step;
  const auto& c = config.checkpoint;
  // The evaluation comes first: a kill before the save repeats both, a kill after it neither.
  if (config.eval.every_steps > 0 && step % config.eval.every_steps == 0) {
    PL_TRY_VOID(run_evaluation(summary));
  }
  const bool by_steps = c.every_steps > 0 && step % c.every_steps == 0;
  const bool by_time = c.every_seconds > 0 && seconds_since(saved_at) >= c.every_seconds;
  // Weights that give no finite loss are not worth an older checkpoint.
  const bool healthy = run.counters.bad_in_a_row == 0;
  if (healthy && (by_steps || by_time)) PL_TRY_VOID(save(summary));
  return {};
}

Result<void> Trainer::Impl::run_evaluation(TrainSummary& summary) {
  const auto start = Clock::now();
  auto metrics = evaluate(config, config.eval.split, *eval_source, ranker, view(), ctx, stop);
  const double took = seconds_since(start);
  summary.eval_seconds += took;
  idle_s += took;
  if (!metrics) {
    // A stop during an evaluation ends the evaluation, not the save that follows.
    if (metrics.error().code() == Code::kCancelled) return {};
    return Error(std::move(metrics.error())
                     .context(fmt::format("evaluating {} at step {}", config.eval.split,
                                          run.counters.step)));
  }
  PL_TRY_VOID(append_eval(config.run_dir, run.counters.step, *metrics));
  progress.line(fmt::format("step {}\n{}", run.counters.step, metrics_table(*metrics)));
  return {};
}

Result<void> Trainer::Impl::save(TrainSummary& summary) {
  const auto start = Clock::now();
  PL_TRY_VOID(checkpoint::publish(config.checkpoint.dir, to_content(run, weights, ranker.layout()))
                  .context("saving the state of the run"));
  saved_step = run.counters.step;
  // The state is safe; that an old one cannot be removed ends no run.
  if (run.counters.bad_in_a_row > 0) {
    log::warning(fmt::format("older checkpoints in {} are kept: the last steps were not finite",
                             config.checkpoint.dir));
  } else if (auto pruned = checkpoint::prune(config.checkpoint.dir, config.checkpoint.keep_last);
             !pruned) {
    log::warning(pruned.error().text());
  }
  saved_at = Clock::now();
  const double took = seconds_since(start);
  summary.save_seconds += took;
  idle_s += took;
  return {};
}

void Trainer::request_stop() { impl_->stop.request(); }

std::int64_t Trainer::epoch_rows() const { return impl_->source->rows(); }

std::size_t Trainer::memory_bytes() const {
  const auto& t = *impl_;
  const auto floats = static_cast<std::size_t>(3 * t.ranker.layout().size() +
                                               t.weights.table_rows * (t.weights.table_width + 1));
  return floats * sizeof(float) + t.ranker.memory_bytes() + t.dense_grad.size_bytes() +
         t.table_grad.size_bytes() + static_cast<std::size_t>(t.batches->memory().total());
}

}  // namespace paceline::train
