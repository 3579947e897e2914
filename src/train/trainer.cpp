#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "core/bytes.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "data/dataset_listing.hpp"
#include "telemetry/progress.hpp"
#include "train/device_choice.hpp"
#include "train/evaluate.hpp"
#include "train/resuming.hpp"
#include "train/run_directory.hpp"
#include "train/run_state.hpp"
#include "train/saving.hpp"
#include "train/step_engine.hpp"

namespace paceline::train {

struct Trainer::Impl {
  // A step whose result was not taken yet.
  struct UnderWay {
    std::int64_t step = 0, epoch = 0;
    std::int64_t examples = 0, tokens = 0;  // of the run, this step included
    std::int64_t batch_examples = 0;
    double factor = 0.0, wait_s = 0.0;
    Clock::time_point start;
  };

  Impl(TrainConfig c, TrainOptions o, telemetry::Progress& p, RunDirectory d,
       std::unique_ptr<data::Source> s, DeviceChoice chosen)
      : config(std::move(c)),
        options(std::move(o)),
        progress(p),
        directory(std::move(d)),
        source(std::move(s)),
        device(std::move(chosen)),
        pool(config.threads()),
        ctx(pool),
        layout(config.model, config.schema),
        weights(layout.size(), config.schema.table_rows(), config.model.table_width) {}

  Result<void> begin();
  Result<void> open_engine();
  Result<void> open_saving(const checkpoint::Restored* restored);
  Result<void> open_eval_source();
  Result<void> open_batches();
  Result<TrainSummary> loop();
  Result<void> train_batch(data::BatchPipeline::Lease& lease, double wait_s,
                           Clock::time_point start);
  // Takes results, oldest first, until `left` steps are under way.
  Result<void> settle(std::size_t left);
  Result<void> settle_one();
  Result<void> after_step();
  Result<void> log_step(const UnderWay& step, const StepResult& result, double step_s,
                        double exposed_s);
  void show(const UnderWay& step, double loss);
  Result<void> run_evaluation();
  Result<data::BatchPipeline::Fetched> fetch();
  Result<TrainSummary> finish(TrainSummary summary);
  double run_progress(std::int64_t rows) const {
    const auto all = static_cast<double>(config.loop.epochs) * static_cast<double>(source->rows());
    return all > 0 ? static_cast<double>(rows) / all : 1.0;
  }
  TrainConfig config;
  TrainOptions options;
  telemetry::Progress& progress;
  RunDirectory directory;
  std::unique_ptr<data::Source> source;
  std::unique_ptr<data::Source> eval_source;
  DeviceChoice device;
  pipeline::TaskPool pool;
  ops::Context ctx;
  model::ParameterLayout layout;
  ModelState weights;  // the engine's own on the CPU, a copy for saves on the GPU
  std::unique_ptr<StepEngine> engine;
  std::deque<UnderWay> under_way;
  std::unique_ptr<Saving> saving;  // copies from the weights
  std::unique_ptr<data::BatchPipeline> batches;
  StopRequest stop;

  RunState run;
  features::CutCounts cuts_before;  // of the processes before this one
  Clock::time_point loop_start{};
  std::int64_t loop_examples = 0;
  double loop_wait_s = 0.0;
  double eval_s = 0.0;
  Clock::time_point settled_at{};  // when the last result was taken
  std::int64_t logged_block_wait_ns = 0;
  double logged_save_wait_s = 0.0;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(TrainConfig config, TrainOptions options,
                                                 telemetry::Progress& progress) {
  PL_TRY(const auto paths, config.data.split("train"));
  PL_TRY(auto device, choose_device(config.loop));
  PL_TRY(auto source, data::open_parquet(paths, config.schema, config.source_options()));
  PL_TRY(auto directory, RunDirectory::open(config.run_dir));
  std::unique_ptr<Trainer> trainer(new Trainer(
      std::make_unique<Impl>(std::move(config), std::move(options), progress, std::move(directory),
                             std::move(source), std::move(device))));
  auto& t = *trainer->impl_;
  PL_TRY_VOID(t.directory.check_is_run(t.config.checkpoint.dir));
  PL_TRY_VOID(t.directory.lock_checkpoints(t.config.checkpoint.dir));
  PL_TRY_VOID(t.open_eval_source());
  PL_TRY_VOID(t.begin());
  PL_TRY_VOID(t.open_batches());
  PL_TRY_VOID(t.directory.write_config(t.config.resolved));
  PL_TRY_VOID(t.directory.write_data_files(t.source->fingerprint(), t.source->files()));
  PL_TRY_VOID(t.directory.forget_after(t.run.counters.step));
  return trainer;
}

Result<void> Trainer::Impl::open_batches() {
  auto pipeline_options = config.pipeline_options();
  pipeline_options.allow_changed_data = options.allow_changed_data;
  pipeline_options.snapshot_bytes = static_cast<std::int64_t>(saving->memory_bytes());
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

Result<void> Trainer::Impl::begin() {
  const BeginningOptions how{.allow_changed_keys = options.allow_changed_keys,
                             .version = options.version,
                             .commit = options.commit,
                             .device = engine_name(device),
                             .fingerprint = source->fingerprint()};
  PL_TRY(auto begun, begin_run(config, how, layout, weights, progress));
  run = std::move(begun.run);
  cuts_before = run.cuts;
  // A run that ended for its bad steps gets as many more.
  if (run.counters.bad_in_a_row >= config.loop.max_bad_steps) run.counters.bad_in_a_row = 0;
  PL_TRY_VOID(open_engine());
  return open_saving(begun.restored ? &*begun.restored : nullptr);
}

Result<void> Trainer::Impl::open_engine() {
  const SaveHooks hooks{
      .before_table_update = [this] { return saving->before_table_update(); },
      .touch = [this](std::span<const std::int32_t> rows) { saving->touch(rows); }};
  PL_TRY(engine, make_step_engine({config, layout, weights, ctx, device, hooks, run.algorithms}));
  run.algorithms = engine->algorithms();
  if (device.cuda) {
    progress.line(fmt::format("on {} in {}, {} of its memory", device.name,
                              device.bf16 ? "bf16" : "fp32",
                              bytes_text(static_cast<std::int64_t>(engine->device_bytes()))));
  }
  return {};
}

Result<void> Trainer::Impl::open_saving(const checkpoint::Restored* restored) {
  const auto content = [this]() -> Result<checkpoint::Content> {
    // Until there is a saver the host's state is what the engine began from.
    if (saving) PL_TRY_VOID(engine->to_host());
    run.cuts = cuts_before;
    if (batches) run.cuts += batches->cuts();
    return to_content(run, weights, layout);
  };
  PL_TRY(saving, Saving::create(config.checkpoint, directory, content, restored));
  return {};
}

Result<TrainSummary> Trainer::run() {
  auto summary = impl_->loop();
  impl_->progress.finish();
  return summary;
}

Result<TrainSummary> Trainer::Impl::finish(TrainSummary summary) {
  PL_TRY_VOID(settle(0));
  PL_TRY_VOID(saving->finish(run.counters));
  PL_TRY_VOID(directory.flush_metrics());
  summary.step = run.counters.step;
  summary.examples = loop_examples;
  summary.skipped_steps = run.counters.skipped_steps;
  summary.seconds = seconds_since(loop_start);
  summary.wait_seconds = loop_wait_s;
  summary.saves = saving->stats();
  summary.save_seconds = summary.saves.wait_s;
  summary.eval_seconds = eval_s;
  summary.cuts = cuts_before;
  summary.cuts += batches->cuts();
  summary.skipped = batches->skipped();
  summary.block_waits = batches->block_waits();
  summary.batch_waits = batches->batch_waits();
  return summary;
}

// Looks for requests to save while there is no batch.
Result<data::BatchPipeline::Fetched> Trainer::Impl::fetch() {
  std::optional<Error> failed;
  auto fetched = batches->next_batch([&] {
    if (failed) return;
    auto looked = saving->requested() ? settle(0) : Result<void>();
    if (looked) looked = saving->while_waiting(run.counters);
    if (looked) return;
    failed = std::move(looked.error());
    batches->stop();
  });
  if (failed) return std::move(*failed);
  return fetched;
}

Result<TrainSummary> Trainer::Impl::loop() {
  TrainSummary summary;
  summary.first_step = run.counters.step;
  loop_start = Clock::now();
  const StopRequest::Hook wake(stop, [this] { batches->stop(); });
  // What was trained before the error is kept; a failing save does not hide the error.
  const auto fail = [&](Error error) -> Error {
    if (auto finished = finish(summary); !finished) log::error(finished.error().text());
    return error;
  };

  // A stop may have cut the evaluation of the step that a resume starts from.
  if (const auto at = run.counters.step; config.eval.every_steps > 0 && at > 0 &&
                                         at % config.eval.every_steps == 0 &&
                                         !directory.has_evaluation(at, config.eval.split)) {
    PL_TRY_VOID(run_evaluation());
  }

  while (config.loop.max_steps == 0 || run.counters.step < config.loop.max_steps) {
    if (stop.requested()) {
      summary.end = TrainEnd::kStopped;
      return finish(summary);
    }
    const double saved_s = saving->wait_s();
    const auto start = Clock::now();
    auto fetched = fetch();
    // A save while there was no batch is not waited for data.
    const double wait_s = seconds_since(start) - (saving->wait_s() - saved_s);
    if (!fetched) return fail(std::move(fetched.error()));
    if (fetched->state == data::FetchState::kEnd) break;
    if (fetched->state == data::FetchState::kStopped) continue;
    if (auto trained = train_batch(fetched->lease, wait_s, start); !trained) {
      return fail(std::move(trained.error()));
    }
    if (auto done = after_step(); !done) return fail(std::move(done.error()));
  }
  return finish(summary);
}

Result<void> Trainer::Impl::train_batch(data::BatchPipeline::Lease& lease, double wait_s,
                                        Clock::time_point start) {
  const features::Batch& batch = lease.batch();
  auto& counters = run.counters;
  // Results that may end the run come before another step.
  if (counters.bad_in_a_row + static_cast<std::int64_t>(under_way.size()) >=
      config.loop.max_bad_steps) {
    PL_TRY_VOID(settle(0));
  }
  const double factor =
      config.schedule.factor(run_progress(run.position.rows), run_progress(lease.position().rows));
  PL_TRY_VOID(engine->submit(batch, factor));

  ++counters.step;
  counters.examples += batch.examples();
  counters.tokens += batch.tokens();
  loop_examples += batch.examples();
  lease.mark_trained();
  run.position = batches->offsets_to_commit();
  if (options.on_batch) options.on_batch(batch.dataset_row());
  under_way.push_back({counters.step, lease.epoch(), counters.examples, counters.tokens,
                       batch.examples(), factor, wait_s, start});
  lease.give_back();
  return settle(static_cast<std::size_t>(engine->lag()));
}

Result<void> Trainer::Impl::settle(std::size_t left) {
  while (under_way.size() > left) PL_TRY_VOID(settle_one());
  return {};
}

Result<void> Trainer::Impl::settle_one() {
  const StepResult result = engine->take();
  const UnderWay step = under_way.front();
  under_way.pop_front();
  const double step_s = seconds_since(std::max(step.start, settled_at));
  settled_at = Clock::now();
  // A wait beside a step that the GPU is still computing holds nothing up.
  const double exposed_s = device.cuda ? result.idle_s : step.wait_s;
  loop_wait_s += exposed_s;
  auto& counters = run.counters;
  const bool applied = result.outcome.applied;
  counters.bad_in_a_row = applied ? 0 : counters.bad_in_a_row + 1;
  if (!applied) {
    ++counters.skipped_steps;
    log::warning(
        fmt::format("step {}: loss {} or gradient norm {} is not finite; the batch is skipped "
                    "({} in a row)",
                    step.step, result.loss, result.outcome.grad_norm, counters.bad_in_a_row));
  }
  if (step.step % config.loop.log_every == 0 || !applied) {
    PL_TRY_VOID(log_step(step, result, step_s, exposed_s));
  }
  show(step, result.loss);
  if (counters.bad_in_a_row >= config.loop.max_bad_steps) {
    return Error(
        Code::kInternal,
        fmt::format("step {}: {} steps in a row had a non-finite loss or gradient "
                    "(train.max_bad_steps = {}); a lower optimizer.lr or a check of the number "
                    "columns may help",
                    step.step, counters.bad_in_a_row, config.loop.max_bad_steps));
  }
  return {};
}

Result<void> Trainer::Impl::log_step(const UnderWay& step, const StepResult& result, double step_s,
                                     double exposed_s) {
  nlohmann::json line;
  line["step"] = step.step;
  line["epoch"] = step.epoch;
  // JSON has no NaN: a loss that is not finite is written as null.
  line["loss"] = result.loss;
  line["examples"] = step.examples;
  line["tokens"] = step.tokens;
  line["lr"] = config.optimizer.lr * step.factor;
  line["grad_norm"] = result.outcome.grad_norm;
  line["applied"] = result.outcome.applied;
  line["step_ms"] = step_s * 1e3;
  // What the loop, or the GPU, waited for a batch in this step; what the batcher waited for
  // readers, and the loop for saves, since the last line.
  const auto blocks_ns = batches->block_waits().consumer_wait_ns;
  line["wait_ms"] = {{"batches", exposed_s * 1e3},
                     {"blocks", static_cast<double>(blocks_ns - logged_block_wait_ns) * 1e-6}};
  line["wait_ms"]["save"] = (saving->wait_s() - logged_save_wait_s) * 1e3;
  logged_block_wait_ns = blocks_ns;
  logged_save_wait_s = saving->wait_s();
  line["examples_per_s"] = step_s > 0 ? static_cast<double>(step.batch_examples) / step_s : 0.0;
  return directory.append_metrics(line);
}

void Trainer::Impl::show(const UnderWay& step, double loss) {
  telemetry::ProgressSample s;
  // Evaluation and saving are left out of the rate.
  const double busy_s = seconds_since(loop_start) - eval_s - saving->wait_s();
  s.step = step.step;
  s.epochs = config.loop.epochs;
  s.epoch = step.epoch;
  s.loss = loss;
  s.examples_per_s = busy_s > 0 ? static_cast<double>(loop_examples) / busy_s : 0.0;
  s.wait_share = busy_s > 0 ? loop_wait_s / busy_s : 0.0;
  s.fraction = run_progress(run.position.rows);
  const auto rows = static_cast<double>(run.position.rows);
  double left = s.fraction > 0.0 ? rows / s.fraction - rows : 0.0;
  if (config.loop.max_steps > 0) {
    // The run may end sooner: at max_steps, at the examples that a step has taken so far.
    const auto steps = static_cast<double>(step.step);
    const auto most = static_cast<double>(config.loop.max_steps);
    left = std::min(left, rows / steps * (most - steps));
    s.fraction = std::max(s.fraction, steps / most);
  }
  s.eta_s = s.examples_per_s > 0 ? left / s.examples_per_s : 0.0;
  progress.update(s);
}

Result<void> Trainer::Impl::after_step() {
  // The evaluation comes first: a kill before the save repeats both, a kill after it neither.
  if (config.eval.every_steps > 0 && run.counters.step % config.eval.every_steps == 0) {
    PL_TRY_VOID(run_evaluation());
  }
  const bool due = saving->due(run.counters.step);
  if (due || saving->requested()) PL_TRY_VOID(settle(0));
  return saving->at_boundary(run.counters, due);
}

Result<void> Trainer::Impl::run_evaluation() {
  PL_TRY_VOID(settle(0));
  const auto start = Clock::now();
  auto metrics = evaluate(config, config.eval.split, *eval_source, *engine, stop);
  const double took = seconds_since(start);
  eval_s += took;
  if (!metrics) {
    // A stop during an evaluation ends the evaluation, not the save that follows.
    if (metrics.error().code() == Code::kCancelled) return {};
    return Error(std::move(metrics.error())
                     .context(fmt::format("evaluating {} at step {}", config.eval.split,
                                          run.counters.step)));
  }
  PL_TRY_VOID(append_eval(config.run_dir, run.counters.step, *metrics));
  note_best(run, *metrics);
  progress.line(fmt::format("step {}\n{}", run.counters.step, metrics_table(*metrics)));
  return {};
}

void Trainer::request_stop() { impl_->stop.request(); }
void Trainer::request_save() { impl_->saving->request(); }

std::int64_t Trainer::epoch_rows() const { return impl_->source->rows(); }

std::size_t Trainer::memory_bytes() const {
  const auto& t = *impl_;
  const auto floats = static_cast<std::size_t>(3 * t.layout.size() +
                                               t.weights.table_rows * (t.weights.table_width + 1));
  return floats * sizeof(float) + t.engine->host_bytes() + t.saving->memory_bytes() +
         static_cast<std::size_t>(t.batches->memory().total());
}

}  // namespace paceline::train
