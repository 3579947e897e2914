#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "data/suggest_config.hpp"
#include "data_commands.hpp"
#include "inspect_report.hpp"
#include "telemetry/progress.hpp"

namespace paceline::app {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> targets;
  std::vector<std::string> overrides;
  std::string split = "train";
  bool json = false, config = false;
  std::int64_t limit_rows = 0;
  int threads = 0;
};

struct Dataset {
  std::vector<std::string> paths;
  features::Schema schema;
  features::BatchLimits limits;
  InspectedWith with;
};

// The config that `target` is or holds; empty when it is data.
std::string config_file(const std::string& target) {
  std::error_code ignored;
  const fs::path path(target);
  if (path.extension() == ".toml") return target;
  const auto inside = path / "config.toml";
  return fs::is_regular_file(inside, ignored) ? inside.string() : "";
}

Result<Dataset> read_keys(Config config, const Arguments& a) {
  Dataset d;
  for (const auto& assignment : a.overrides) PL_TRY_VOID(config.override_with(assignment));
  PL_TRY(d.schema, features::Schema::from_config(config));
  PL_TRY(d.limits, features::BatchLimits::from_config(config, d.schema));
  PL_TRY(d.with.shuffle_window, config.get_int("data.shuffle_window", 16, {.min = 0}));
  PL_TRY(d.paths, config.get_paths("data." + a.split, std::vector<std::string>{}));
  return d;
}

Result<Dataset> dataset_of(const Arguments& a) {
  const std::string file = config_file(a.targets[0]);
  if (!file.empty()) {
    if (a.targets.size() > 1) {
      return Error(Code::kInvalidArgument,
                   "found a config and more, allowed is one config or paths");
    }
    PL_TRY(auto config, Config::load(file));
    PL_TRY(auto d, read_keys(std::move(config), a));
    if (d.paths.empty()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{}: key data.{} names no data", file, a.split));
    }
    d.with.config = file;
    d.with.target = fmt::format("data.{}", a.split);
    return d;
  }
  PL_TRY(const auto suggested, data::suggest(a.targets));
  PL_TRY(auto config, Config::parse(suggested.toml, "suggested config"));
  PL_TRY(auto d, read_keys(std::move(config), a));
  if (!suggested.has_labels) d.schema = d.schema.without_labels();
  d.paths = a.targets;
  d.with.config = "suggested config";
  d.with.target = fmt::format("{}", fmt::join(a.targets, " "));
  return d;
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
  PL_TRY(auto d, dataset_of(a));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  d.with.threads = a.threads > 0 ? a.threads : std::min(cores, 16);
  std::atomic<bool> stop{false};
  const StopOnSignal on_signal([&] { stop = true; });
  const bool terminal = telemetry::is_terminal(stderr);
  telemetry::Progress progress(stderr, terminal);
  data::InspectOptions options;
  options.threads = d.with.threads;
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
  const auto found = data::inspect(d.paths, d.schema, d.limits, options);
  if (terminal) progress.finish();
  if (!found) return found.error();
  if (a.json) {
    // Names may hold any bytes.
    fmt::print("{}\n", inspection_json(*found, d.with)
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", inspection_text(*found, d.with));
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
  command->add_flag("--json", args->json, "print one JSON object (keys: docs/data.md)");
  command->add_flag("--config", args->config,
                    "print a config suggested by the columns of the first file, and nothing else");
  command->add_option("--split", args->split, "of a config: train, valid or test")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "valid", "test"}));
  command
      ->add_option("--set", args->overrides,
                   "section.key=value, overrides the config; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--limit-rows", args->limit_rows,
                   "read only the row groups that hold the first N rows (0: all)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", args->threads, "threads that read (0: one per core)")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->footer(
      "Data without a config is read with a suggested one (see --config).\n"
      "Exit codes: 0 done, 1 training would refuse rows, row groups or files, 2 usage error,\n"
      "130 stopped: what was read until then is shown.");
  command->callback([args, &chosen] { chosen = [args] { return inspect(*args); }; });
}

}  // namespace paceline::app
