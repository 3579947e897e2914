#include <fmt/format.h>

#include <cstdio>

#include "commands.hpp"
#include "telemetry/progress.hpp"
#include "train/loaded_run.hpp"
#include "train/trainer.hpp"

namespace paceline::app {
namespace {

void show_waits(const char* name, const pipeline::WaitStats& w) {
  fmt::print(
      "hand-off {}: {} items, consumer waited {:.3f} s, producer {:.3f} s, {:.1f} full on "
      "average\n",
      name, w.items, static_cast<double>(w.consumer_wait_ns) * 1e-9,
      static_cast<double>(w.acquire_wait_ns) * 1e-9, w.mean_occupancy());
}

Result<int> train(const std::string& config_file, const std::vector<std::string>& overrides,
                  const train::TrainOptions& options) {
  PL_TRY(auto config, train::read_config(config_file, overrides));
  const std::string run_dir = config.run_dir;
  telemetry::Progress progress(stdout, telemetry::is_terminal(stdout));
  PL_TRY(auto trainer, train::Trainer::create(std::move(config), options, progress));
  progress.line(fmt::format(
      "{} rows an epoch, at most {:.0f} MiB of weights, activations, snapshots, row groups and "
      "batches",
      trainer->epoch_rows(), static_cast<double>(trainer->memory_bytes()) / 1048576.0));
  Result<train::TrainSummary> summary = [&] {
    const StopOnSignal on_stop([&] { trainer->request_stop(); });
    const SaveOnSignal on_save([&] { trainer->request_save(); });
    return trainer->run();
  }();
  if (!summary) return Error(std::move(summary.error()));
  const std::string skipped = data::skipped_text(summary->skipped);
  if (summary->step == summary->first_step && summary->end == train::TrainEnd::kDone) {
    if (trainer->epoch_rows() == 0) {
      fmt::print("data.train has no rows: nothing to train\n");
      return 0;
    }
    if (!skipped.empty()) fmt::print("{} (the whole run)\n", skipped);
    fmt::print("{} is complete at step {}; nothing left to train (a larger train.epochs goes on)\n",
               run_dir, summary->step);
    return 0;
  }
  const double busy = summary->seconds - summary->save_seconds - summary->eval_seconds;
  fmt::print(
      "{} at step {}: {} examples in {:.1f} s, {:.0f} examples/s, waited {:.2f} % for data, "
      "saving {:.2f} s, evaluation {:.2f} s{}\n",
      summary->end == train::TrainEnd::kDone ? "done" : "stopped", summary->step, summary->examples,
      summary->seconds, busy > 0 ? static_cast<double>(summary->examples) / busy : 0.0,
      busy > 0 ? 100.0 * summary->wait_seconds / busy : 0.0, summary->save_seconds,
      summary->eval_seconds,
      summary->skipped_steps > 0
          ? fmt::format(", {} steps skipped (not finite)", summary->skipped_steps)
          : "");
  if (const std::string cuts = features::cuts_text(summary->cuts); !cuts.empty()) {
    fmt::print("{}\n", cuts);
  }
  if (!skipped.empty()) fmt::print("{} (the whole run)\n", skipped);
  if (const auto& saves = summary->saves; saves.failed + saves.skipped > 0) {
    fmt::print("saves: {} made, {} failed, {} skipped because two were under way (saves.jsonl)\n",
               saves.saved, saves.failed, saves.skipped);
  }
  show_waits("readers -> batcher", summary->block_waits);
  show_waits("batcher -> training", summary->batch_waits);
  fmt::print("run directory: {}\n", run_dir);
  return summary->end == train::TrainEnd::kDone ? 0 : kExitStopped;
}

}  // namespace

void add_train(CLI::App& app, Command& chosen) {
  struct Arguments {
    std::string config;
    std::vector<std::string> overrides;
    train::TrainOptions options;
  };
  auto args = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "train", "Train; the same command again goes on from the newest complete checkpoint");
  command->add_option("CONFIG", args->config, "TOML file, or a run directory to go on with")
      ->required();
  add_overrides(*command, args->overrides);
  add_device(*command, args->overrides);
  command->add_flag("--allow-changed-keys", args->options.allow_changed_keys,
                    "go on although keys differ that a resume should not change (data.seed and "
                    "data.shuffle_window never may)");
  command->add_flag("--allow-changed-data", args->options.allow_changed_data,
                    "go on although the files of data.train changed: the epoch begins again");
  command->footer(
      "SIGINT, SIGTERM or SIGHUP: the step is finished, the state saved, exit 130.\n"
      "SIGUSR1: the state is saved at the next step, and training goes on.");
  args->options.version = PACELINE_VERSION;
  command->callback([args, &chosen] {
    chosen = [args] { return train(args->config, args->overrides, args->options); };
  });
}

}  // namespace paceline::app
