#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <thread>

#include "data/suggest_config.hpp"
#include "data_commands.hpp"
#include "inspect_report.hpp"
#include "inspect_target.hpp"
#include "telemetry/progress.hpp"

namespace paceline::app {
namespace {

struct Arguments {
  std::vector<std::string> targets;
  std::vector<std::string> overrides;
  std::string split;
  bool json = false, config = false;
  std::int64_t limit_rows = 0;
  int threads = 0;
};

InspectedWith told_of(const DataTarget& target, const Arguments& a) {
  InspectedWith with;
  const bool config = !target.config_file.empty();
  with.config = config ? target.config_file : "suggested config";
  with.target = config ? "data." + (a.split.empty() ? std::string("train") : a.split)
                       : fmt::format("{}", fmt::join(a.targets, " "));
  with.has_labels = target.has_labels;
  with.shuffle_window = target.config.data.shuffle_window;
  if (config) return with;
  for (const auto& folder : a.targets) {
    for (const char* split : {"train", "valid", "test"}) {
      std::error_code ignored;
      const auto inside = std::filesystem::path(folder) / split;
      if (std::filesystem::is_directory(inside, ignored)) with.splits.push_back(inside.string());
    }
  }
  return with;
}

Result<int> print_config(const Arguments& a) {
  if (!config_file(a.targets[0]).empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: found a config, --config allows data", a.targets[0]));
  }
  PL_TRY(const auto text, data::suggest_config(a.targets));
  fmt::print("{}", text);
  return 0;
}

Result<int> inspect(const Arguments& a) {
  if (a.config) return print_config(a);
  PL_TRY(const auto target, data_target(a.targets, a.split, a.overrides));
  InspectedWith with = told_of(target, a);
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  with.threads = a.threads > 0 ? a.threads : std::min(cores, 16);
  std::atomic<bool> stop{false};
  const StopOnSignal on_signal([&] { stop = true; });
  const bool terminal = telemetry::is_terminal(stderr);
  telemetry::Progress progress(stderr, terminal);
  data::InspectOptions options;
  options.threads = with.threads;
  options.loading = target.config.pipeline_options();
  options.limit_rows = a.limit_rows;
  const auto start = Clock::now();
  options.on_progress = [&](std::int64_t rows, std::int64_t all) {
    const double speed = static_cast<double>(rows) / std::max(seconds_since(start), 1e-9);
    if (terminal && rows > 0) {
      progress.update(fmt::format(
          "{} of {} rows  {:.0f} %  {:.0f} rows/s  ETA {}", rows, all,
          100.0 * static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(all, 1)),
          speed, telemetry::duration_text(static_cast<double>(all - rows) / speed)));
    }
    return !stop.load();
  };
  const auto found = data::inspect(target.paths, target.schema, target.config.limits, options);
  if (terminal) progress.finish();
  if (!found) return found.error();
  if (a.json) {
    // Names may hold any bytes.
    fmt::print("{}\n", inspection_json(*found, with)
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", inspection_text(*found, with));
  }
  if (found->stopped) return kExitStopped;
  return found->anything_refused() ? 1 : 0;
}

}  // namespace

void add_data_inspect(CLI::App& data, Command& chosen) {
  auto args = std::make_shared<Arguments>();
  auto* command = data.add_subcommand(
      "inspect", "Look at a data set: sizes, columns, lengths, rates, speed, refused rows");
  command
      ->add_option("TARGET", args->targets,
                   "config file or run directory; or data: directories, files, globs")
      ->required();
  auto* json =
      command->add_flag("--json", args->json, "print one JSON object (keys: docs/data.md)");
  auto* split =
      command->add_option("--split", args->split, "of a config: train (default), valid or test");
  split->check(CLI::IsMember({"train", "valid", "test"}));
  auto* set = add_overrides(*command, args->overrides);
  command
      ->add_option("--limit-rows", args->limit_rows,
                   "read only the row groups that hold the first N rows (0: all)")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  command
      ->add_flag("--config", args->config,
                 "print a config suggested by the columns of the first file, and nothing else")
      ->excludes(json)
      ->excludes(split)
      ->excludes(set);
  command->add_option("--threads", args->threads, "threads that read (0: one per core)")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->footer(
      "Data without a config is read with a suggested one (see --config). Folders train, valid\n"
      "and test within a directory are read together; name one of them to look at it alone.\n"
      "Exit codes: 0 done, 1 training would refuse rows, row groups or files, 2 usage error,\n"
      "130 stopped: what was read until then is shown.");
  command->callback([args, &chosen] { chosen = [args] { return inspect(*args); }; });
}

}  // namespace paceline::app
