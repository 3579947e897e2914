#include <fmt/format.h>

#include <cstdio>

#include "commands.hpp"
#include "train/evaluate.hpp"
#include "train/loaded_run.hpp"

namespace paceline::app {
namespace {

Result<int> eval(const std::string& target, const std::string& split,
                 const std::vector<std::string>& overrides) {
  PL_TRY(auto config, train::read_config(target, overrides));
  PL_TRY(const auto paths, config.data.split(split));
  PL_TRY(const auto data, train::open_eval_source(paths, config.schema, config.source_options()));
  PL_TRY(const auto run, train::load_run(std::move(config)));
  train::StopRequest stop;
  const StopOnSignal on_signal([&] { stop.request(); });
  PL_TRY(const auto scorer, run->scorer(run->config.schema, run->config.limits));
  auto metrics = train::evaluate(run->config, split, *data.source, *scorer, stop,
                                 data.oracle ? &*data.oracle : nullptr);
  if (!metrics && metrics.error().code() == Code::kCancelled) return kExitStopped;
  if (!metrics) return Error(std::move(metrics.error()));
  fmt::print("{}, step {}, split {}\n{}\n", run->config.run_dir, run->step, split,
             train::metrics_table(*metrics));
  // Shown first: what was computed is not lost to a file that cannot be written.
  std::fflush(stdout);
  PL_TRY_VOID(train::append_eval(run->config.run_dir, run->step, *metrics));
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Command& chosen) {
  struct Arguments {
    std::string target, split = "test";
    std::vector<std::string> overrides;
  };
  auto args = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "eval", "Metrics of a split: a table here, one object per action in the run's eval.jsonl");
  command->add_option("CONFIG|RUN", args->target, "config file, or run directory")->required();
  command->add_option("--split", args->split, "train, valid or test")->capture_default_str();
  add_overrides(*command, args->overrides);
  add_device(*command, args->overrides);
  command->footer(
      "auc is exact with ties; user_auc is weighted by candidates over users with both "
      "classes;\nne is log loss / entropy of the base rate; [..] are 95 % bootstrap "
      "intervals over users\n(eval.bootstrap resamples). oracle_auc and oracle_ne are those of the "
      "true probabilities,\nwhere the data has them in a column oracle_probability.");
  command->callback([args, &chosen] {
    chosen = [args] { return eval(args->target, args->split, args->overrides); };
  });
}

}  // namespace paceline::app
